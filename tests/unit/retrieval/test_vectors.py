from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from corpusmill.retrieval.files import folder
from corpusmill.retrieval.vectors import VECTOR_FILES, IndexSizes, VectorIndex, build_vectors, index_kind
from corpusmill.schemas import vector_table

SMALL = IndexSizes(flat_max=50_000, ivf_max=1_000_000, train_max=200_000)
IVF = IndexSizes(flat_max=10, ivf_max=1_000_000, train_max=500)
CODED = IndexSizes(flat_max=10, ivf_max=20, train_max=500)


def unit_rows(n: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def batches(vectors: np.ndarray, size: int = 100) -> list[pa.RecordBatch]:
    spec = vector_table("v", vectors.shape[1])
    ids = [f"{i:05d}" for i in range(len(vectors))]
    rows = [{"text_hash": "t", "unit_id": i, "input_hash": i, "vector": v} for i, v in zip(ids, vectors, strict=True)]
    return spec.table(rows).to_batches(max_chunksize=size)  # type: ignore[no-any-return]


def opened(vectors: np.ndarray, sizes: IndexSizes, where: Path) -> VectorIndex:
    assert build_vectors(batches(vectors), len(vectors), where, sizes) == len(vectors)
    assert sorted(path.name for path in where.iterdir()) == sorted(VECTOR_FILES)
    return VectorIndex(folder(where), nprobe=64)


@pytest.mark.parametrize(("sizes", "least"), [(SMALL, 1.0), (IVF, 0.95), (CODED, 0.9)])
def test_finds_what_an_exact_search_finds(sizes: IndexSizes, least: float, tmp_path: Path) -> None:
    vectors = unit_rows(1_500)
    index = opened(vectors, sizes, tmp_path)
    shared = []
    for query in unit_rows(20, seed=1):
        exact = {f"{i:05d}" for i in np.argsort(-(vectors @ query))[:10]}
        hits = index.search(query, 10)
        assert [h[2] for h in hits] == sorted((h[2] for h in hits), reverse=True)
        shared.append(len(exact & {unit for _, unit, _ in hits}) / 10)
    assert np.mean(shared) >= least


def of_texts(vectors: np.ndarray, texts: list[str], sizes: IndexSizes, where: Path, nprobe: int = 4) -> VectorIndex:
    spec = vector_table("v", vectors.shape[1])
    rows = [
        {"text_hash": text, "unit_id": f"{i:05d}", "input_hash": str(i), "vector": vector}
        for i, (text, vector) in enumerate(zip(texts, vectors, strict=True))
    ]
    build_vectors(spec.table(rows).to_batches(max_chunksize=100), len(rows), where, sizes)
    return VectorIndex(folder(where), nprobe)


@pytest.mark.parametrize("sizes", [SMALL, IVF, CODED])
@pytest.mark.parametrize("share", [3, 40, 500, 1_500])
def test_a_scope_is_kept_to_and_filled(sizes: IndexSizes, share: int, tmp_path: Path) -> None:
    vectors = np.abs(unit_rows(1_500))  # every cosine is above 0
    texts = [f"t{i * 7919 % 1_500}" for i in range(1_500)]
    index = of_texts(vectors, texts, sizes, tmp_path)
    allowed = frozenset(f"t{i}" for i in range(share))
    for query in np.abs(unit_rows(5, seed=1)):
        hits = index.search(query, 10, texts=allowed)
        assert len(hits) == min(10, share) and {text for text, *_ in hits} <= allowed
        rows = [i for i, text in enumerate(texts) if text in allowed]
        exact = {f"{i:05d}" for i in sorted(rows, key=lambda i: -(vectors[i] @ query))[:10]}
        assert len(exact & {unit for _, unit, _ in hits}) >= (10 if sizes is SMALL else 6) * min(10, share) // 10
    assert index.search(unit_rows(1)[0], 10, texts=frozenset()) == []
    assert index.search(unit_rows(1)[0], 10, texts=frozenset({"unknown"})) == []


def test_the_kind_follows_the_size() -> None:
    assert index_kind(10, IVF) == "Flat"
    assert index_kind(1_500, IVF).endswith(",Flat") and index_kind(1_500, IVF).startswith("IVF")
    assert index_kind(1_500, CODED).endswith(",SQ8")


def test_ties_go_by_id_and_zero_vectors_are_never_found(tmp_path: Path) -> None:
    vectors = np.zeros((40, 4), np.float32)
    vectors[5:30, 0] = 1.0
    hits = opened(vectors, SMALL, tmp_path).search(np.array([1, 0, 0, 0], np.float32), 3)
    assert [unit for _, unit, _ in hits] == ["00005", "00006", "00007"]


def test_an_empty_index_a_zero_query_and_a_threshold(tmp_path: Path) -> None:
    empty = opened(np.zeros((0, 8), np.float32), SMALL, tmp_path / "empty")
    assert empty.search(np.ones(8, np.float32), 5) == []
    vectors = unit_rows(30, 8)
    index = opened(vectors, SMALL, tmp_path / "some")
    assert index.search(np.zeros(8, np.float32), 5) == []
    assert index.search(vectors[3], 5, above=0.999) == [("t", "00003", pytest.approx(1.0))]
    assert index.search(vectors[3], 5, above=1.1) == []


def test_equal_vectors_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        build_vectors(batches(unit_rows(800)), 800, tmp_path / name, IVF, seed=3)
    assert (tmp_path / "a" / "vectors.faiss").read_bytes() == (tmp_path / "b" / "vectors.faiss").read_bytes()


def test_a_wrong_row_count_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected 5 vectors"):
        build_vectors(batches(unit_rows(4)), 5, tmp_path, SMALL)
