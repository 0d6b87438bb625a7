"""Estimates: extrapolation, its interval, prices and the method's formula."""

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import SourceError, UnknownMethodError
from corpusmill.estimate import Listing, SourceSample, chunk_sizes, drawn, estimate, estimate_source, half_width
from corpusmill.methods.flexstructrag.estimating import estimate_calls, window_tokens
from corpusmill.methods.flexstructrag.settings import FlexSettings
from corpusmill.settings_sources import load_settings
from corpusmill.sources.listing import Listed

PRICED = {
    "models.default.backend": "openai",
    "models.default.model": "some-model",
    "models.default.price_in": "2",
    "models.default.price_out": "8",
    "models.default.gpu_tokens_per_second": "1000",
    "chunk.tokenizer": "wordpiece",
}
SETTINGS = load_settings(None, PRICED).settings
SAMPLE = SourceSample(1000, True, ((500, 550, 600), (520,), (300,), (600, 600)), unreadable=1)


def test_chunks_and_calls_are_scaled_to_all_documents() -> None:
    found = estimate(SETTINGS, SAMPLE)
    assert (found.documents, found.sampled, found.unreadable) == (1000, 5, 1)
    assert found.chunks == 7 * 200
    assert {task.task: task.calls for task in found.tasks}["extract"] == 7 * 200
    assert found.calls == sum(task.calls for task in found.tasks)
    assert found.uncertainty is not None and 0.5 < found.uncertainty < 1.5


def test_price_and_gpu_hours_follow_the_tokens() -> None:
    found = estimate(SETTINGS, SAMPLE)
    assert found.cost == pytest.approx((2 * found.tokens_in + 8 * found.tokens_out) / 1e6)
    assert found.gpu_hours == pytest.approx((found.tokens_in + found.tokens_out) / 1000 / 3600)
    assert "some-model" in "\n".join(found.lines())


def test_the_embedded_rules_cost_nothing_but_are_counted() -> None:
    found = estimate(load_settings().settings, SAMPLE)
    assert found.calls > 0
    assert (found.tokens_in, found.tokens_out, found.cost, found.gpu_hours) == (0, 0, 0.0, None)


def test_an_empty_source() -> None:
    found = estimate(SETTINGS, SourceSample(0, True, ()))
    assert (found.chunks, found.calls, found.cost, found.uncertainty) == (0, 0, 0.0, None)


@pytest.mark.parametrize(
    ("g_max", "g_overlap", "wanted"),
    [
        (3, 2, 10 + (10 + 20) + (10 + 20 + 30) + (20 + 30 + 40)),
        (3, 1, 10 + (10 + 20) + (10 + 20 + 30) + (30 + 40)),
        (1, 0, 100),
    ],
)
def test_a_prompt_holds_the_chunks_of_its_window(g_max: int, g_overlap: int, wanted: int) -> None:
    assert window_tokens(FlexSettings(g_max=g_max, g_overlap=g_overlap), [10, 20, 30, 40]) == wanted


def test_a_higher_threshold_means_fewer_calls() -> None:
    few = estimate_calls(FlexSettings(tau_e=9, tau_s=20), [[600] * 5])
    many = estimate_calls(FlexSettings(tau_e=1, tau_s=4), [[600] * 5])
    assert few.calls[0].calls == many.calls[0].calls == 5
    assert few.calls[1].calls < many.calls[1].calls
    assert few.calls[2].calls < many.calls[2].calls


@given(st.lists(st.integers(0, 20), min_size=2, max_size=30), st.integers(0, 1000))
def test_the_interval_shrinks_to_nothing_when_all_is_seen(values: list[int], more: int) -> None:
    sample = [float(v) for v in values]
    whole = half_width(sample, len(sample))
    assert whole == 0.0
    part = half_width(sample, len(sample) + 1 + more)
    if sum(values) == 0:
        assert part is None
    else:
        assert part is not None and math.isfinite(part) and part >= 0
        assert half_width(sample * 4, len(sample) * 4 + 1 + more * 4) <= part + 1e-9  # type: ignore[operator]


def test_chunk_sizes_are_those_of_the_chunker() -> None:
    sizes = chunk_sizes(load_settings().settings, "\n\n".join(["word " * 100] * 20))
    assert sum(sizes) == 2000
    assert max(sizes) <= 600 + 500 - 1


def corpus(folder: Path, documents: int) -> Path:
    for number in range(documents):
        words = [f"w{number}", *["word"] * (100 * (1 + number % 3) - 1)]
        (folder / f"{number:03d}.txt").write_text(" ".join(words))
    return folder


def test_a_folder_is_listed_sampled_and_extrapolated(tmp_path: Path) -> None:
    found = estimate_source(load_settings().settings, str(corpus(tmp_path, 30)), sample=15)
    assert (found.documents, found.complete, found.sampled, found.chunks) == (30, True, 15, 30)
    assert 30 * 100 < found.chunk_tokens < 30 * 300
    again = estimate_source(load_settings().settings, str(tmp_path), sample=15)
    assert again == found
    whole = estimate_source(load_settings().settings, str(tmp_path), sample=100)
    assert (whole.chunk_tokens, whole.uncertainty) == (30 * 200, 0.0)


def test_unreadable_documents_are_counted_not_fatal(tmp_path: Path) -> None:
    corpus(tmp_path, 2)
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7\nbroken" + bytes(range(256)))
    found = estimate_source(load_settings().settings, str(tmp_path))
    assert (found.documents, found.unreadable, found.chunks) == (3, 1, 2)
    assert any(note.startswith("unreadable, for example: ") for note in found.lines())


def test_a_text_that_documents_share_counts_once(tmp_path: Path) -> None:
    for number in range(9):  # three texts, three documents each
        (tmp_path / f"{number}.txt").write_text("word " * 100 * (1 + number % 3))
    found = estimate_source(load_settings().settings, str(tmp_path))
    assert (found.documents, found.sampled, found.repeats, found.chunks, found.uncertainty) == (9, 9, 6, 3, 0.0)
    assert found.chunk_tokens == 100 + 200 + 300
    assert {task.task: task.calls for task in found.tasks}["extract"] == 3
    assert "9 documents, 6 of them with the text of another (9 sampled), about 3 chunks, 600 tokens" in found.lines()[0]


def test_repeats_among_a_sample_are_extrapolated() -> None:
    found = estimate(SETTINGS, SourceSample(1000, True, ((500,), (400,)), unreadable=1, repeated=2))
    assert (found.sampled, found.repeats, found.chunks) == (5, 400, 400)


def test_records_that_share_a_text_are_told_by_the_listing(tmp_path: Path) -> None:
    """Two hundred records of two texts: both are in a sample of five, and neither is counted a hundred times."""
    source = tmp_path / "records.jsonl"
    texts = ["word " * 100, "other " * 50]
    source.write_text("".join(json.dumps({"id": i, "text": texts[i % 2]}) + "\n" for i in range(200)))
    found = estimate_source(load_settings().settings, str(source), sample=5)
    assert (found.documents, found.sampled, found.repeats) == (200, 2, 198)
    assert (found.chunks, found.chunk_tokens, found.uncertainty) == (2, 150, 0.0)


def test_objects_of_equal_size_and_tag_are_one_content() -> None:
    def item(path: str, tag: str, size: int = 3, problem: str | None = None) -> Listed:
        return Listed(path, f"s3://b/{path}", tag, size, location=path, problem=problem)

    items = [item("a", "x"), item("b", "x"), item("c", "y"), item("d", "x", 4), item("e", "x", problem="no")]
    tagged = Listing(items, tagged=True)
    assert [found.path for found in tagged] == ["a", "c", "d", "e"]
    assert (tagged.listed, tagged.repeats, tagged.complete) == (5, 1, True)
    assert [found.path for found in Listing(items)] == list("abcde")  # of files, size and time tell nothing


def test_what_is_kept_to_find_repeats_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.estimate.MOST_KNOWN", 2)
    items = [Listed(str(i), str(i), tag, 1, location=str(i)) for i, tag in enumerate("xyzzx")]
    listing = Listing(items, tagged=True)
    assert [found.path for found in listing] == ["0", "1", "2", "3"]
    assert listing.repeats == 1


def test_listing_may_be_bounded(tmp_path: Path) -> None:
    found = estimate_source(load_settings().settings, str(corpus(tmp_path, 9)), most_listed=5)
    assert (found.documents, found.complete) == (5, False)
    assert "5 or more documents" in found.lines()[0]


def test_a_missing_source_and_an_unknown_method(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere"):
        estimate_source(load_settings().settings, str(tmp_path / "nowhere"))
    with pytest.raises(UnknownMethodError, match="flexrag"):
        estimate_source(load_settings(None, {"run.methods": "flexrag"}).settings, str(corpus(tmp_path, 1)))


@given(st.integers(0, 60), st.integers(1, 12), st.integers(0, 5))
def test_a_draw_is_a_sample_without_replacement(population: int, size: int, seed: int) -> None:
    kept = drawn(range(population), size, seed)
    assert len(kept) == min(size, population)
    assert len(set(kept)) == len(kept) and set(kept) <= set(range(population))
    assert drawn(range(population), size, seed) == kept


def test_every_item_has_the_same_chance() -> None:
    counts = Counter(item for seed in range(3000) for item in drawn(range(10), 3, seed))
    assert all(abs(count - 900) < 120 for count in counts.values())
