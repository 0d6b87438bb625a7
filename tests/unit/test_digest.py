"""The content digest: independent of order, files and types of equal meaning; altered by any one cell."""

import hashlib
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.digest import NOT_DIGESTED, RowsDigest, digest_by, rows_digest, snapshot_digest
from corpusmill.methods.flexstructrag import tables as flex
from corpusmill.schemas import CHUNKS, DOCUMENTS, TEXTS, TableSpec, vector_table

SPECS = [DOCUMENTS, TEXTS, CHUNKS, vector_table("vectors", 4)] + [
    spec for spec in vars(flex).values() if isinstance(spec, TableSpec)
]


def cells(field: pa.Field) -> st.SearchStrategy[object]:
    kind = field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values: st.SearchStrategy[object] = st.text(st.characters(codec="utf-8"), max_size=6)
    elif pa.types.is_boolean(kind):
        values = st.booleans()
    elif pa.types.is_integer(kind):
        values = st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    elif pa.types.is_floating(kind):
        values = st.floats(width=32, allow_nan=False)
    elif pa.types.is_struct(kind):
        values = st.fixed_dictionaries({child.name: cells(child) for child in kind})
    elif pa.types.is_fixed_size_list(kind):
        values = st.lists(cells(kind.value_field), min_size=kind.list_size, max_size=kind.list_size)
    else:
        values = st.lists(cells(kind.value_field.with_nullable(False)), max_size=3)
    return st.one_of(st.none(), values) if field.nullable else values


def rows(spec: TableSpec) -> st.SearchStrategy[list[dict[str, object]]]:
    return st.lists(st.fixed_dictionaries({f.name: cells(f) for f in spec.schema}), min_size=1, max_size=4)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_one_cell_alters_the_digest(spec: TableSpec, data: st.DataObject) -> None:
    before = data.draw(rows(spec))
    row = data.draw(st.integers(0, len(before) - 1))
    for field in spec.schema:
        other = data.draw(cells(field))
        after = [dict(r) for r in before]
        after[row][field.name] = other
        same = rows_digest(spec.table(before)) == rows_digest(spec.table(after))
        left_out = (field.metadata or {}).get(b"corpusmill.digest") == b"skip"
        assert same == (left_out or other == before[row][field.name])


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_order_and_parts_do_not_matter(spec: TableSpec, data: st.DataObject) -> None:
    before = data.draw(rows(spec))
    whole = rows_digest(spec.table(before))
    assert rows_digest(spec.table(data.draw(st.permutations(before)))) == whole
    cut = data.draw(st.integers(0, len(before)))
    table = spec.table(before)
    assert rows_digest(table.slice(0, cut)) + rows_digest(table.slice(cut)) == whole
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)]).select(spec.schema.names[::-1])
    assert rows_digest(chunked) == whole
    by = digest_by(table, spec.schema.names[0])
    assert sum(by.values(), RowsDigest()) == whole
    assert by == {key: rows_digest(spec.table([r for r in before if r[spec.schema.names[0]] == key])) for key in by}


def test_a_repeated_row_counts_twice() -> None:
    one = TEXTS.table([{"text_hash": "a", "text": "b"}])
    assert rows_digest(pa.concat_tables([one, one])) != rows_digest(one)


def test_neighbouring_cells_do_not_run_together() -> None:
    def digest(a: object, b: object) -> RowsDigest:
        return rows_digest(pa.table({"a": [a], "b": [b]}))

    assert len({digest("ab", "c").hex, digest("a", "bc").hex, digest("", "abc").hex}) == 3
    assert digest(["a"], ["b", "c"]) != digest(["a", "b"], ["c"])
    assert rows_digest(pa.table({"a": ["x"]})) != rows_digest(pa.table({"b": ["x"]}))
    assert rows_digest(pa.table({"a": [1]})) != rows_digest(pa.table({"a": ["1"]}))
    assert rows_digest(pa.table({"a": [1]})) != rows_digest(pa.table({"a": [1.0]}))
    assert rows_digest(pa.table({"a": [-0.0]})) == rows_digest(pa.table({"a": [0.0]}))


def test_types_of_equal_meaning_agree() -> None:
    """Spark writes list and string where we write large_string, and structs in its own field order."""
    values = [{"y": "b", "x": 1}, None]
    pairs = [
        (pa.string(), pa.large_string(), ["é", None]),
        (pa.int32(), pa.int64(), [1, None]),
        (pa.list_(pa.string()), pa.large_list(pa.large_string()), [["a", None], None, []]),
        (
            pa.struct([("x", pa.int32()), ("y", pa.string())]),
            pa.struct([("y", pa.string()), ("x", pa.int64())]),
            values,
        ),
    ]
    for left, right, cell in pairs:
        assert rows_digest(pa.table({"a": pa.array(cell, left)})) == rows_digest(pa.table({"a": pa.array(cell, right)}))


def test_the_canonical_form_is_fixed() -> None:
    """Digests are kept in stores: their definition must not drift."""
    struct_type = pa.struct([("x", pa.int64()), ("y", pa.string())])
    table = pa.table(
        {
            "s": ["é"], "i": [-12], "t": [True], "n": pa.array([None], pa.string()), "d": [1.5], "b": [b"\x00"],
            "l": [["p", None]], "m": pa.array([{"x": 1, "y": "q"}], struct_type), "v": [1],
        },
        schema=pa.schema(
            [
                ("s", pa.string()), ("i", pa.int64()), ("t", pa.bool_()), ("n", pa.string()), ("d", pa.float64()),
                ("b", pa.binary()), ("l", pa.list_(pa.string())), ("m", struct_type),
                pa.field("v", pa.int64(), metadata=NOT_DIGESTED),
            ]
        ),
    )  # fmt: skip
    raw = b"\x00".join(name.encode() for name in sorted("sitndblm"))
    raw += b"b1:\x00" + b"d" + struct.pack("<d", 1.5) + b"i3:-12" + b"l2:s1:pn" + b"m2:s1:xi1:1s1:ys1:q"
    raw += b"n" + b"s2:\xc3\xa9" + b"t"
    expected = int.from_bytes(hashlib.blake2b(raw, digest_size=32).digest(), "little")
    assert rows_digest(table) == RowsDigest(1, expected)
    assert RowsDigest.parse(1, RowsDigest(1, expected).hex) == RowsDigest(1, expected)


def test_snapshot_digest_covers_names_rows_and_makers() -> None:
    one, two = RowsDigest(1, 5), RowsDigest(2, 5)
    digests = {
        snapshot_digest({"a": one}), snapshot_digest({"b": one}), snapshot_digest({"a": two}),
        snapshot_digest({"a": one}, "x"), snapshot_digest({"a": one, "b": RowsDigest()}),
    }  # fmt: skip
    assert len(digests) == 5
