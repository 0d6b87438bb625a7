"""Layers of settings: precedence, origins and messages."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import ConfigError
from corpusmill.settings import Settings
from corpusmill.settings_sources import Recorded, leaves, load_settings, parse_assignments, shipped_configs, value_at


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_each_layer_beats_the_one_before_and_origins_say_which(tmp_path: Path) -> None:
    config = write(tmp_path / "c.yaml", "spark:\n  partitions: 3\n  driver_memory: 2g\nray:\n  builders: 5\n")
    environ = {"CORPUSMILL__SPARK__PARTITIONS": "4", "CORPUSMILL__RAY__BUILDERS": "6", "CORPUSMILL_SHARED": "/x"}
    loaded = load_settings(config, {"spark.partitions": "17"}, environ)
    assert loaded.settings.spark.partitions == 17
    assert loaded.settings.ray.builders == 6
    assert loaded.settings.spark.driver_memory == "2g"
    assert loaded.origins["spark.partitions"] == "flag"
    assert loaded.origins["ray.builders"] == "environment CORPUSMILL__RAY__BUILDERS"
    assert loaded.origins["spark.driver_memory"] == f"file {config}"
    assert loaded.origins["spark.master"] == "default"


def test_defaults_alone_are_the_default_tree() -> None:
    loaded = load_settings()
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}
    assert set(loaded.origins) == {".".join(path) for path in leaves(Settings())}


@pytest.mark.parametrize("name", shipped_configs())
def test_shipped_configurations_load_by_bare_name(name: str) -> None:
    loaded = load_settings(name)
    assert any(origin == f"file {name}.yaml (shipped)" for origin in loaded.origins.values())


def test_the_expected_configurations_ship() -> None:
    assert {"local", "cluster", "openai", "flexstructrag"} <= set(shipped_configs())


def test_local_and_flexstructrag_state_the_defaults() -> None:
    assert load_settings("local").settings == Settings()
    assert load_settings("flexstructrag").settings == Settings()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("flag", ["spark.partitons", "flag spark.partitons=3", "'spark.partitions'"]),
        ("environment", ["spark.partitons", "environment CORPUSMILL__SPARK__PARTITONS", "'spark.partitions'"]),
        ("file", ["spark.partitons", "c.yaml, line 3", "'spark.partitions'"]),
    ],
)
def test_an_unknown_key_names_itself_its_place_and_the_nearest(tmp_path: Path, source: str, names: list[str]) -> None:
    config = write(tmp_path / "c.yaml", "# a comment\nspark:\n  partitons: 3\n")
    with pytest.raises(ConfigError) as error:
        if source == "flag":
            load_settings(None, {"spark.partitons": "3"})
        elif source == "environment":
            load_settings(None, None, {"CORPUSMILL__SPARK__PARTITONS": "3"})
        else:
            load_settings(config)
    for name in names:
        assert name in str(error.value)


def test_an_unknown_section_and_a_key_inside_a_value_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'spark'"):
        load_settings(None, {"sparks.partitions": "3"})
    with pytest.raises(ConfigError, match=r"'spark\.partitions' is a single value"):
        load_settings(None, {"spark.partitions.x": "3"})
    with pytest.raises(ConfigError, match=r"did you mean 'methods\.flexstructrag\.tau_merge'"):
        load_settings(None, {"methods.flexstructrag.tau_mege": "0.5"})
    with pytest.raises(ConfigError, match=r"did you mean 'models\.extract\.model'"):
        load_settings(None, {"models.extract": "{mdel: x}"})


def test_a_wrong_type_names_value_place_and_expectation(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"spark\.partitions = 'many' \(flag spark.partitions=many\): expected a valid integer"
    ):
        load_settings(None, {"spark.partitions": "many"})
    config = write(tmp_path / "c.yaml", "spark:\n  partitions: 0\n")
    with pytest.raises(
        ConfigError, match=r"spark\.partitions = 0 \(file .*c\.yaml, line 2\): .*greater than or equal to 1"
    ):
        load_settings(config)
    with pytest.raises(ConfigError, match=r"'embedded', 'openai' or 'vllm'"):
        load_settings(None, {"models.default.backend": "gpt"})


def test_a_broken_relation_between_keys_names_the_place() -> None:
    with pytest.raises(ConfigError, match=r"chunk \(environment CORPUSMILL__CHUNK__CT_MIN\): ct_min \(900\)"):
        load_settings(None, None, {"CORPUSMILL__CHUNK__CT_MIN": "900"})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("spark:\n  partitions: [1\n", r"line 3: not valid YAML"),
        ("- a\n- b\n", r"must be a mapping of sections, got list"),
        ("spark: 3\n", r"spark = 3 \(file .*line 1\)"),
    ],
)
def test_bad_yaml(tmp_path: Path, text: str, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        load_settings(write(tmp_path / "c.yaml", text))


def test_a_missing_file_names_the_shipped_ones() -> None:
    with pytest.raises(ConfigError, match=r"'nowhere\.yaml'; shipped ones: cluster, flexstructrag, local, openai"):
        load_settings("nowhere.yaml")


def test_texts_lists_and_free_mappings() -> None:
    overrides = {
        "spark.master": "local[*]",
        "spark.conf.spark.ui.enabled": "false",
        "source.include": "*.md, *.txt",
        "source.exclude": "[a, b]",
        "models.default.model": "4",
        "run.budget": "null",
    }
    settings = load_settings(None, overrides).settings
    assert settings.spark.master == "local[*]"
    assert settings.spark.conf == {"spark.ui.enabled": "false"}
    assert settings.source.include == ("*.md", "*.txt")
    assert settings.source.exclude == ("a", "b")
    assert settings.models.default.model == "4"
    assert settings.run.budget is None


def test_a_section_set_whole_and_then_by_key() -> None:
    loaded = load_settings(None, {"models.extract": "{backend: openai, model: m}", "models.extract.model": "n"})
    assert loaded.settings.models.extract is not None
    assert loaded.settings.models.extract.model == "n"
    assert loaded.origins["models.extract.model"] == "flag"


def test_assignments() -> None:
    assert parse_assignments(["a.b=1", "c=x=y", "a.b=2"]) == {"c": "x=y", "a.b": "2"}
    with pytest.raises(ConfigError, match=r"expected section\.key=value"):
        parse_assignments(["a.b"])


SCALARS = sorted(
    ".".join(path)
    for path in leaves(Settings())
    if isinstance(value_at(Settings(), ".".join(path)), int | float) and "ct_" not in path[-1]
)


@given(st.sampled_from(SCALARS))
def test_writing_a_default_out_changes_nothing_but_its_origin(key: str) -> None:
    default = value_at(Settings(), key)
    loaded = load_settings(None, {key: yaml.safe_dump(default).split("\n")[0]})
    assert loaded.settings == Settings()
    assert [k for k, origin in loaded.origins.items() if origin != "default"] == [key]


@given(
    st.text(alphabet="abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12), st.sampled_from(["spark", "ray", "run"])
)
def test_any_unknown_key_is_refused_with_a_valid_suggestion(key: str, section: str) -> None:
    if key in type(getattr(Settings(), section)).model_fields:
        return
    with pytest.raises(ConfigError) as error:
        load_settings(None, {f"{section}.{key}": "1"})
    suggestion = str(error.value).split("did you mean '")[1].split("'")[0]
    node: object = Settings()
    for part in suggestion.split("."):
        node = getattr(node, part)


def test_a_snapshots_configuration_lies_between_defaults_and_file(tmp_path: Path) -> None:
    made_with = load_settings(None, {"embedder.backend": "hash", "query.passages": "9", "ray.builders": "7"}).settings
    config = made_with.model_dump(mode="json")
    config["query"]["a_key_of_another_version"] = 1
    config["models"]["default"] = {"backend": "embedded", "gone": True}
    file = write(tmp_path / "c.yaml", "query: {passages: 3}\n")
    loaded = load_settings(file, recorded=Recorded(12, config))
    assert loaded.settings.embedder.backend == "hash"
    assert loaded.origins["embedder.backend"] == "snapshot 12"
    assert loaded.settings.query.passages == 3
    assert loaded.settings.ray.builders == 1  # how a run was carried out is no part of an answer
