"""docs/operations.md: its arithmetic made again, and what it names looked up."""

import re
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from corpusmill.estimate import Estimate, SourceSample, estimate
from corpusmill.settings import Settings
from corpusmill.settings_sources import load_settings
from jobs.driver import MAX_COMMIT_ROUNDS
from jobs.running import HEARTBEAT_S
from ray_actors.failures import MAX_RETRIES
from ray_actors.metrics import exported_names
from tests.shared import REPOSITORY
from tests.unit.infra.test_monitoring import RULES

TEXT = (REPOSITORY / "docs" / "operations.md").read_text("utf-8")
PLAIN = re.sub(r"\s+", " ", TEXT)
QUOTED = re.findall(r"`([^`\n]+)`", TEXT)
PRODUCTION = REPOSITORY / "infra" / "overlays" / "production" / "corpusmill.yaml"


@pytest.fixture(scope="module")
def example() -> Estimate:
    """A million documents of two chunks of 550 tokens, by the settings of the production overlay."""
    settings = load_settings(PRODUCTION).settings
    assert settings.run.methods == ("flexstructrag",)
    return estimate(settings, SourceSample(1_000_000, True, ((550, 550),) * 100))


def test_the_worked_example(example: Estimate) -> None:
    for task in example.tasks:
        assert f"| {task.task} | {task.calls:,} | {task.tokens_in:,} | {task.tokens_out:,} |" in TEXT
    assert f"| in all | {example.calls:,} | {example.tokens_in:,} | {example.tokens_out:,} |" in TEXT
    rate = load_settings(PRODUCTION).settings.models.default.gpu_tokens_per_second
    assert rate is not None
    hours = (example.tokens_in + example.tokens_out) / rate / 3600
    assert example.gpu_hours == pytest.approx(hours)
    assert (
        f"({example.tokens_in:,} + {example.tokens_out:,}) tokens / {rate:,.0f} / 3,600 = {hours:,.0f} GPU hours"
        in PLAIN
    )
    assert f"{hours / 24:.1f} days of one GPU, {hours / 24 / 4:.1f} days of the four" in PLAIN
    assert f"{hours / 24 / 32:.1f} days of 32" in PLAIN


def test_the_vectors_of_the_example(example: Estimate) -> None:
    assert f"embeds {example.embedded_texts:,} texts" in PLAIN
    assert f"that is {example.embedded_texts * 384 * 4 / 1e9:.0f} GB" in PLAIN


def test_contextrag_asks_a_bounded_number() -> None:
    settings = load_settings(PRODUCTION, {"run.methods": "contextrag"}).settings
    found = estimate(settings, SourceSample(1_000_000, True, ((550, 550),) * 100))
    assert f"at most {found.calls} calls of a corpus" in PLAIN


def _has(dotted: str) -> bool:
    kind: Any = Settings
    for part in dotted.split("."):
        if get_origin(kind) is dict:
            return True
        options = [o for o in (get_args(kind) or (kind,)) if isinstance(o, type) and issubclass(o, BaseModel)]
        if not options or part not in options[0].model_fields:
            return False
        kind = options[0].model_fields[part].annotation
    return True


def test_settings_that_are_named_are_there() -> None:
    sections = "|".join(Settings.model_fields)
    named = {q.split(":")[0] for q in QUOTED if re.fullmatch(rf"({sections})\.[a-z_.<>]+(: .*)?", q)}
    assert len(named) > 15
    not_settings = {"spark.authenticate", "spark.network.crypto.enabled", "spark.kubernetes.container.image"}
    missing = {name for name in named - not_settings if not _has(name.replace("<role>", "default"))}
    assert not missing
    for name in not_settings & named:
        assert name in load_settings(PRODUCTION).settings.spark.conf


def test_files_that_are_named_are_there() -> None:
    named = {q for q in QUOTED if re.fullmatch(r"(infra|configs|tools|spark_jobs)/[\w./-]*", q)}
    assert len(named) > 6
    assert not {name for name in named if not (REPOSITORY / name).exists()}
    folders = {p.name for p in (REPOSITORY / "infra").iterdir() if p.is_dir()}
    assert folders <= {name.rstrip("/").split("/")[0] for name in re.findall(r"`([\w/]+)/?`", TEXT)}
    for policy in (REPOSITORY / "infra" / "policies").iterdir():
        assert f"`{policy.name}`" in TEXT


def test_alerts_and_metrics_that_are_named_are_there() -> None:
    alerts = {rule["alert"] for group in RULES["groups"] for rule in group["rules"]}
    assert set(re.findall(r"Corpusmill[A-Z]\w+", TEXT)) <= alerts
    names = exported_names()
    for quoted in QUOTED:
        if re.fullmatch(r"corpusmill_[a-z_]+", quoted):
            assert any(f"ray_{quoted}" == re.sub("_(bucket|sum|count)$", "", name) for name in names), quoted


def _options_of(command: list[str]) -> set[str]:
    from typer.main import get_command

    from jobs.cli import app

    found: Any = get_command(app)
    for word in command:
        found = found.commands[word]
    return {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}


def test_options_of_submit_are_there() -> None:
    section = TEXT.partition("## Submitting")[2].partition("\n## ")[0]
    assert set(re.findall(r"--[a-z-]+", section)) <= _options_of(["submit", "index"])
    for word in ("status", "logs", "stop"):
        assert f"corpusmill submit {word}" in section and "--ray-address" in _options_of(["submit", word])
    commands = set(re.findall(r"`(?:corpusmill )?([a-z]+) (?:INDEX|SOURCE)", TEXT))
    assert commands >= {"status", "verify", "doctor", "estimate"}
    assert all(_options_of([command]) for command in commands)


def test_figures_of_the_code() -> None:
    assert MAX_RETRIES + 1 == 4 and "kills its worker four times" in PLAIN
    assert MAX_COMMIT_ROUNDS == 5 and "up to five times" in PLAIN
    assert HEARTBEAT_S == 5 and "sign of life (every 5 s)" in PLAIN
    assert f"`spark.pair_bound` ({Settings().spark.pair_bound:,})" in TEXT
    assert f"`max_num_seqs` ({Settings().models.default.vllm.max_num_seqs})" in TEXT


def test_commands_of_kubernetes_name_what_is_there() -> None:
    for folder in re.findall(r"kubectl (?:apply|create) -k (\S+)", TEXT):
        assert (REPOSITORY / folder / "kustomization.yaml").is_file()
    for path in re.findall(r"docker build -f (\S+)", TEXT):
        assert (REPOSITORY / path).is_file()
    assert not [line for line in TEXT.splitlines() if len(line) > 120 and not line.startswith("|")]
