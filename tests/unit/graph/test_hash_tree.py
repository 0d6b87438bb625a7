import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.graph.hash_tree import trie_groups
from corpusmill.hashing import hash_text


@settings(deadline=None)
@given(st.sets(st.integers(0, 5000), max_size=300), st.integers(2, 20))
def test_groups_cover_the_items_in_order_within_the_fan_in(items: set[int], fan_in: int) -> None:
    hashes = sorted(hash_text(str(item)) for item in items)
    groups = trie_groups(hashes, fan_in)
    assert [at for group in groups for at in group] == list(range(len(hashes)))
    assert all(0 < len(group) <= fan_in for group in groups)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 2000), st.integers(0, 10_000))
def test_one_item_more_changes_few_groups(count: int, extra: int) -> None:
    hashes = sorted(hash_text(f"p{k}") for k in range(count))
    more = sorted([*hashes, hash_text(f"new{extra}")])
    before = {tuple(hashes[at] for at in group) for group in trie_groups(hashes, 8)}
    after = {tuple(more[at] for at in group) for group in trie_groups(more, 8)}
    assert len(after - before) <= 2 + math.log2(count + 1)  # a full group splits until its items part


def test_refuses_a_fan_in_that_cannot_shrink() -> None:
    with pytest.raises(ValueError, match="at least 2, got 1"):
        trie_groups(["aa"], 1)
