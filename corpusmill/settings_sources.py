"""Where settings come from: defaults < a YAML file < environment (CORPUSMILL__SECTION__KEY) < flags.

A query starts from what its snapshot was made with: that layer lies between the defaults and the file.

Every error names the key, the value, the place it came from and the valid choices.
"""

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from corpusmill.errors import ConfigError
from corpusmill.settings import Settings

ENVIRONMENT_PREFIX = "CORPUSMILL__"
CONFIG_PACKAGE = "corpusmill_configs"
RECORDED_SECTIONS = ("models", "embedder", "rerank", "methods", "query")


@dataclass(frozen=True)
class LoadedSettings:
    """Validated settings; `origins` maps each dotted key to "default", "snapshot N", "file X", "environment NAME" or
    "flag"."""

    settings: Settings
    origins: Mapping[str, str]


@dataclass(frozen=True)
class Recorded:
    """The configuration stored in a snapshot's manifest. Keys that this version does not know are left out."""

    snapshot: int
    config: Mapping[str, object]


@dataclass(frozen=True)
class _Given:
    """One value that a source sets. `origin` is its kind, `place` also tells the line or the flag."""

    path: tuple[str, ...]
    value: object
    origin: str
    place: str


@dataclass
class _Layers:
    """Values merged so far, and where each came from."""

    tree: dict[str, Any] = field(default_factory=dict)
    given: dict[tuple[str, ...], _Given] = field(default_factory=dict)

    def put(self, item: _Given) -> None:
        node = self.tree
        for part in item.path[:-1]:
            child = node.get(part)
            if not isinstance(child, dict):
                child = node[part] = {}
            node = child
        node[item.path[-1]] = item.value
        covered = [path for path in self.given if path[: len(item.path)] == item.path or path == item.path]
        for path in covered:
            del self.given[path]
        self.given[item.path] = item


def load_settings(
    config: Path | str | None = None,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    recorded: Recorded | None = None,
) -> LoadedSettings:
    """Settings from a file (or the bare name of a shipped one), an environment and flags (dotted key -> YAML text).

    `recorded` is the configuration that a snapshot was made with. Raises ConfigError on a missing file, bad YAML, an
    unknown key or a value of the wrong type.
    """
    layers = _Layers()
    for item in _from_snapshot(recorded) if recorded is not None else ():
        layers.put(item)
    for item in _from_file(config) if config is not None else ():
        layers.put(item)
    for item in _from_environment(environ or {}):
        layers.put(item)
    for item in _from_flags(overrides or {}):
        layers.put(item)
    try:
        settings = Settings.model_validate(layers.tree)
    except ValidationError as error:
        raise ConfigError(_explain(error, layers)) from error
    origins = {".".join(path): _origin(path, layers) for path in leaves(settings)}
    return LoadedSettings(settings, origins)


def shipped_configs() -> tuple[str, ...]:
    """Bare names of the configurations that come with the package."""
    files = resources.files(CONFIG_PACKAGE).iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


def leaves(model: BaseModel, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all values of a settings tree; a section that is None and a free mapping are one value each."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, (*prefix, name))
        else:
            yield (*prefix, name)


def value_at(model: BaseModel, dotted: str) -> object:
    """The value under a dotted key of `leaves`."""
    node: object = model
    for part in dotted.split("."):
        node = getattr(node, part)
    return node


# --- sources ---------------------------------------------------------------------------------------------------------


def _from_file(config: Path | str) -> Iterator[_Given]:
    label, text = _read_config(config)
    origin = f"file {label}"
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise ConfigError(f"{origin}, line {line}: not valid YAML: {error.problem or error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{origin}: not valid YAML: {error}") from error
    if data is None:
        return
    if not isinstance(data, dict) or not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{origin}: the file must be a mapping of sections, got {type(data).__name__}")
    lines = dict(_lines(root, ()))
    yield from _walk(data, (), lambda path: f"{origin}, line {lines[path]}" if path in lines else origin, origin)


def _read_config(config: Path | str) -> tuple[str, str]:
    path = Path(config)
    shipped = shipped_configs()
    if path.is_file():
        try:
            return str(config), path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the configuration {str(config)!r}: {error}") from error
    if str(config) in shipped:
        name = f"{config}.yaml"
        return f"{name} (shipped)", resources.files(CONFIG_PACKAGE).joinpath(name).read_text("utf-8")
    raise ConfigError(f"no configuration file {str(config)!r}; shipped ones: {', '.join(shipped)}")


def _lines(node: yaml.MappingNode, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    for key, value in node.value:
        path = (*prefix, str(key.value))
        yield path, key.start_mark.line + 1
        if isinstance(value, yaml.MappingNode):
            yield from _lines(value, path)


def _walk(data: Mapping[Any, object], prefix: tuple[str, ...], place: Any, origin: str) -> Iterator[_Given]:
    for key, value in data.items():
        path = (*prefix, str(key))
        at = place(path)
        kind = _type_at(path, at)
        if _section_type(kind) is not None and isinstance(value, dict):
            yield from _walk(value, path, place, origin)
        elif _section_type(kind) is not None and value is None and not _takes(kind, type(None)):
            continue  # an empty section in YAML
        else:
            yield _Given(path, _file_value(value, kind), origin, at)


def _from_snapshot(recorded: Recorded) -> Iterator[_Given]:
    """Only what decides about answers: models, embedder, reranker, methods, query; not engines, paths or limits."""
    name = f"snapshot {recorded.snapshot}"
    kept = {key: recorded.config[key] for key in RECORDED_SECTIONS if key in recorded.config}
    known = _known(kept, Settings)
    yield from _walk(known, (), lambda _: name, name)


def _known(data: Mapping[str, object], section: type[BaseModel]) -> dict[str, object]:
    out: dict[str, object] = {}
    for key, value in data.items():
        if key not in section.model_fields:
            continue
        inner = _section_type(section.model_fields[key].annotation)
        out[key] = _known(value, inner) if inner is not None and isinstance(value, Mapping) else value
    return out


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        path = tuple(part.lower() for part in name.removeprefix(ENVIRONMENT_PREFIX).split("__"))
        place = f"environment {name}"
        yield _Given(path, _text_value(path, environ[name], place), place, place)


def _from_flags(overrides: Mapping[str, str]) -> Iterator[_Given]:
    for dotted, text in overrides.items():
        place = f"flag {dotted}={text}"
        path = tuple(dotted.split("."))
        for cut in range(1, len(path)):
            if get_origin(_type_at(path[:cut], place)) is dict:  # keys of a free mapping may hold dots
                path = (*path[:cut], ".".join(path[cut:]))
                break
        yield _Given(path, _text_value(path, text, place), "flag", place)


def parse_assignments(assignments: tuple[str, ...] | list[str]) -> dict[str, str]:
    """`section.key=value` texts as a mapping; the last one of a key wins. Raises ConfigError without a `=`."""
    out: dict[str, str] = {}
    for text in assignments:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"--set {text!r}: expected section.key=value, for example spark.partitions=8")
        out.pop(key.strip(), None)
        out[key.strip()] = value
    return out


# --- values ----------------------------------------------------------------------------------------------------------


def _text_value(path: tuple[str, ...], text: str, place: str) -> object:
    """The value of an environment variable or flag: YAML, but a text stays text where the key takes text."""
    kind = _type_at(path, place)
    section = _section_type(kind)
    takes_text = _takes(kind, str)
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        if takes_text or get_origin(kind) is tuple:
            value = text
        else:
            raise ConfigError(f"{place}: {text!r} is not valid YAML for {'.'.join(path)}") from error
    if takes_text and not isinstance(value, str | None):
        return text
    if get_origin(kind) is tuple and isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if section is not None and not isinstance(value, dict | None):
        raise ConfigError(
            f"{place}: {'.'.join(path)} is a section, got {text!r}; its keys: {', '.join(section.model_fields)}"
        )
    if section is not None and isinstance(value, dict):
        for _ in _walk(value, path, lambda _: place, place):
            pass  # refuses unknown keys inside
    return _file_value(value, kind)


def _file_value(value: object, kind: object) -> object:
    """In a free mapping of texts (spark.conf), `false` and `4` are meant as the texts they are written as."""
    if get_origin(kind) is dict and isinstance(value, dict):
        return {str(k): _scalar_text(v) for k, v in value.items()}
    if kind is str and isinstance(value, bool | int | float):
        return _scalar_text(value)
    return value


def _scalar_text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


# --- types of keys ---------------------------------------------------------------------------------------------------


def _type_at(path: tuple[str, ...], place: str) -> object:
    """The annotation of a key. Raises ConfigError naming the nearest valid key when there is none."""
    kind: object = Settings
    for depth, part in enumerate(path):
        if get_origin(kind) is dict:
            return get_args(kind)[1]
        section = _section_type(kind)
        if section is None or part not in section.model_fields:
            raise ConfigError(_unknown(path, depth, section, place))
        kind = section.model_fields[part].annotation
    return kind


def _section_type(kind: object) -> type[BaseModel] | None:
    """The settings class that an annotation holds (`X` or `X | None`)."""
    for option in _options(kind):
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None


def _options(kind: object) -> tuple[object, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _takes(kind: object, wanted: type) -> bool:
    options = _options(kind)
    if wanted in options:
        return True
    return wanted is str and any(get_origin(option) is Literal for option in options)


def _all_keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in section.model_fields.items():
        yield prefix + name
        inner = _section_type(info.annotation)
        if inner is not None:
            yield from _all_keys(inner, f"{prefix}{name}.")


def _unknown(path: tuple[str, ...], depth: int, section: type[BaseModel] | None, place: str) -> str:
    from rapidfuzz import fuzz, process

    dotted = ".".join(path)
    if section is None:
        return f"unknown key {dotted!r} ({place}): {'.'.join(path[:depth])!r} is a single value, it has no keys"
    prefix = "".join(f"{part}." for part in path[:depth])
    near = process.extractOne(path[depth], list(section.model_fields), scorer=fuzz.ratio, score_cutoff=60)
    nearest = prefix + near[0] if near else process.extractOne(dotted, list(_all_keys(Settings)), scorer=fuzz.ratio)[0]
    where = f"keys of {prefix[:-1]!r}" if depth else "sections"
    return f"unknown key {dotted!r} ({place}); did you mean {nearest!r}? {where}: {', '.join(section.model_fields)}"


# --- errors ----------------------------------------------------------------------------------------------------------


def _origin(path: tuple[str, ...], layers: _Layers) -> str:
    item = _nearest(path, layers)
    return item.origin if item else "default"


def _nearest(path: tuple[str, ...], layers: _Layers) -> _Given | None:
    """What set this key, or the section or mapping around it, or the last key inside it."""
    for cut in range(len(path), 0, -1):
        if path[:cut] in layers.given:
            return layers.given[path[:cut]]
    inside = [item for key, item in layers.given.items() if key[: len(path)] == path]
    return inside[-1] if inside else None


def _explain(error: ValidationError, layers: _Layers) -> str:
    messages = []
    for problem in error.errors(include_url=False):
        path = tuple(str(part) for part in problem["loc"])
        item = _nearest(path, layers)
        place = item.place if item else "default"
        expected = str(problem["msg"]).replace("Input should be", "expected").removeprefix("Value error, ")
        value = "" if isinstance(problem["input"], dict | BaseModel) else f" = {problem['input']!r}"
        messages.append(f"{'.'.join(path)}{value} ({place}): {expected}")
    return "; ".join(messages)
