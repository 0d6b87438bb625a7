import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.graph.components import components, string_components


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=40))
def test_the_label_is_the_least_reachable_member(edges: list[tuple[int, int]]) -> None:
    a, b = (np.array([e[k] for e in edges], dtype=np.int64) for k in range(2))
    near: dict[int, set[int]] = {}
    for x, y in edges:
        near.setdefault(x, {x}).add(y)
        near.setdefault(y, {y}).add(x)

    def reach(start: int) -> set[int]:
        seen, todo = {start}, [start]
        while todo:
            for node in near[todo.pop()] - seen:
                seen.add(node)
                todo.append(node)
        return seen

    expected = {node: min(reach(node)) for node in near}
    nodes, label = components(a, b)
    assert dict(zip(nodes.tolist(), label.tolist(), strict=True)) == expected
    table = string_components([f"{x:03d}" for x, _ in edges], [f"{y:03d}" for _, y in edges])
    assert dict(zip(*table.to_pydict().values(), strict=True)) == {f"{k:03d}": f"{v:03d}" for k, v in expected.items()}
