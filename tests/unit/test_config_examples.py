"""The example files are valid, `full.yaml` lists every setting with its true default, and the
schema in the repository is the one that the models make and that the examples obey."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from async_processor.admission.settings import GateSettings
from async_processor.config.load import load, warnings
from async_processor.config.schema import schema, schema_text
from async_processor.config.settings import RedisTransport
from async_processor.config.yaml_file import read_file, read_yaml
from async_processor.dispatch.settings import MergePolicySettings, MergeSettings
from async_processor.fields import Section
from async_processor.transforms.settings import RequestPluginTransform, ResponsePluginTransform

EXAMPLES = Path(__file__).parents[2] / "config"
FILES = sorted(EXAMPLES.glob("*.yaml"))
GATES = get_args(get_args(GateSettings)[0])
OF_DEFAULTS = (
    "fallback: 0 leaves the gate open",
    "max_concurrency: closes at 95 requests per ready pod, which the 64 workers",
)
"""What the defaults of gates, shown in the full example, are warned of."""
WITH_AN_EXAMPLE = (
    "id",
    "prometheus",
    "saturation_gate_params",
    "worker_pools",
    "VllmPoolGate.urls",
    "transforms",
    "TransformSettings.request",
    "TransformSettings.response",
    "providers",
)
"""Settings that are shown with another value than their default."""


def document(name: str) -> dict[str, Any]:
    return read_yaml(read_file(EXAMPLES / name), name)


def test_there_are_examples() -> None:
    assert {file.name for file in FILES} >= {"minimal.yaml", "full.yaml", "gates.yaml"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_is_valid_and_warns_of_nothing_but_a_default(file: Path) -> None:
    warned = [str(problem) for problem in warnings(load(file, {}))]
    assert [problem for problem in warned if not any(map(problem.__contains__, OF_DEFAULTS))] == []
    assert len(warned) == (len(OF_DEFAULTS) if file.name == "full.yaml" else 0)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_names_its_schema(file: Path) -> None:
    first = file.read_text().splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert match
    assert (file.parent / match[1]).is_file()


def test_the_minimal_example_follows_its_variables() -> None:
    settings = load(
        EXAMPLES / "minimal.yaml", {"IGW_BASE_URL": "http://other", "REDIS_URL": "redis://env"}
    )
    assert settings.queues[0].igw_base_url == "http://other"
    assert isinstance(settings.transport, RedisTransport)
    assert settings.transport.url == "redis://env"


def sections(section: Section, written: Any) -> Iterator[tuple[Section, dict[str, Any]]]:
    """Every section of the settings together with what the file says there."""
    yield section, written
    for key, name in type(section).keys().items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from sections(value, written.get(key, {}))
        elif isinstance(value, tuple) and value and isinstance(value[0], Section):
            for entry, item in zip(value, written.get(key, []), strict=True):
                yield from sections(entry, item)


def first_of_each_type() -> dict[type[Section], tuple[Section, dict[str, Any]]]:
    found: dict[type[Section], tuple[Section, dict[str, Any]]] = {}
    pubsub = load(EXAMPLES / "pubsub.yaml", {}).transport
    for section, written in (
        *sections(load(EXAMPLES / "full.yaml", {}), document("full.yaml")),
        *sections(pubsub, document("pubsub.yaml")["transport"]),
    ):
        found.setdefault(type(section), (section, written))
    return found


FULL = first_of_each_type()


def default(field: FieldInfo) -> Any:
    if field.default_factory is not None:
        return field.get_default(call_default_factory=True, validated_data={"queue_name": None})
    return field.default


def test_the_full_example_has_every_kind_of_section() -> None:
    assert set(GATES) <= set(FULL)
    assert {section.__name__ for section in FULL} >= {
        "Settings",
        "RedisTransport",
        "QueueSettings",
        "PubSubTransport",
        "TopicSettings",
        "PoolSettings",
        "RandomRobinPolicy",
        "PrometheusSettings",
        "InferenceSettings",
        "TlsSettings",
        "RetrySettings",
        "ServerSettings",
        "LimitSettings",
    }


@pytest.mark.parametrize("model", FULL, ids=lambda model: model.__name__)
def test_the_full_example_lists_every_setting(model: type[Section]) -> None:
    _, written = FULL[model]
    assert set(written) == set(model.keys())


@pytest.mark.parametrize("model", FULL, ids=lambda model: model.__name__)
def test_the_full_example_shows_true_defaults(model: type[Section]) -> None:
    section, written = FULL[model]
    shown = {key: getattr(section, name) for key, name in model.keys().items()}
    for name, field_name in model.keys().items():
        field = model.model_fields[field_name]
        expected = default(field)
        an_example = not {name, f"{model.__name__}.{name}"}.isdisjoint(WITH_AN_EXAMPLE)
        if field.is_required() or expected is PydanticUndefined or an_example:
            assert written[name], f"{name} has no default, so the example must show a value"
        elif name + "s" in shown:  # one of the two is required
            assert expected is None
        else:
            assert shown[name] == expected, name


POLICIES = get_args(get_args(MergeSettings)[0])
PLUGINS = (RequestPluginTransform, ResponsePluginTransform)
"""Told in a comment, since none is installed."""


def told_in_comments() -> dict[str, dict[str, Any]]:
    """What the comments of the full example say of merge policies and transforms."""
    text = (EXAMPLES / "full.yaml").read_text()
    blocks = re.findall(r"(?:^  #   .*\n)+", text, re.MULTILINE)
    parsed = [yaml.safe_load(re.sub(r"^  #   ", "", block, flags=re.MULTILINE)) for block in blocks]
    return {block["type"]: block for block in parsed}


def test_the_full_example_tells_of_every_merge_policy() -> None:
    common = set(MergePolicySettings.model_fields)
    chosen = document("full.yaml")["merge_policy"]["type"]
    told = told_in_comments()
    del told["plugin"]
    assert {chosen, *told} == {model.model_fields["type"].default for model in POLICIES}
    for model in POLICIES:
        written = told.get(model.model_fields["type"].default)
        if written is None:
            continue
        assert set(written) | common == set(model.model_fields)
        given = {key: value for key, value in written.items() if value is not None}
        assert model.model_validate(given) == model()


def test_the_full_example_tells_of_plugins() -> None:
    written = told_in_comments()["plugin"]
    for model in PLUGINS:
        assert set(written) == set(model.model_fields)
        assert written["name"] == model.model_fields["name"].default
        assert written["parameters"] == {}


def test_no_setting_is_left_out_of_the_reference() -> None:
    told = {section.__name__ for section in (*FULL, *POLICIES, *PLUGINS)}
    same = {"MemoryTransport": "RedisTransport"}  # its settings are those of the other, fewer
    for name, section in schema()["$defs"].items():
        if "properties" not in section:  # a choice of words
            continue
        reference = same.get(name, name)
        assert reference in told, f"{name} stands nowhere in full.yaml"
        if reference != name:
            others = schema()["$defs"][reference]["properties"]
            assert set(section["properties"]) <= set(others)


def test_the_schema_in_the_repository_is_current() -> None:
    kept = (EXAMPLES / "async-processor.schema.json").read_text()
    assert kept == schema_text(), (
        "run: async-processor config schema > config/async-processor.schema.json"
    )


def test_the_schema_describes_every_setting() -> None:
    described = {**schema()["$defs"], "Settings": schema()}
    for model in FULL:
        properties = described[model.__name__]["properties"]
        names = set(model.keys())
        assert set(properties) >= names
        for name in names:
            # A setting that says the same as its section is described there alone.
            section = properties[name].get("$ref", "").removeprefix("#/$defs/")
            about = properties[name].get("description") or described[section]["description"]
            assert about, f"{model.__name__}.{name}"
        assert described[model.__name__]["additionalProperties"] is False
