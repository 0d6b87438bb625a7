"""What identifies an index build."""

from corpusmill.planning import resolved_plan
from corpusmill.settings import EmbedderSettings, RunSettings, Settings
from corpusmill.steps import BuildStep


def test_the_seed_is_part_of_a_vector_index_and_of_nothing_else() -> None:
    plans = [
        resolved_plan(Settings(embedder=EmbedderSettings(backend="hash"), run=RunSettings(seed=seed)))
        for seed in (1, 2, 1)
    ]
    assert plans[0].fingerprints == plans[2].fingerprints
    changed = {name for name, own in plans[0].fingerprints.items() if plans[1].fingerprints[name] != own}
    vector_steps = {s.name for s in plans[0].of_kind(BuildStep) if "vectors.faiss" in getattr(s, "files", ())}
    assert changed == vector_steps and "chunk_index" in changed
