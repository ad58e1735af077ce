"""Whatever stands in a configuration, it is read, or refused in lines that name a place."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from async_processor.config.load import validated, warnings
from async_processor.config.migrate import migrate
from async_processor.config.yaml_file import read_file, read_yaml
from async_processor.errors import ConfigurationError

EXAMPLE = read_yaml(read_file(Path(__file__).parents[2] / "config" / "full.yaml"), name="full.yaml")
ODD = st.sampled_from(
    ["", " ", "${X}", "a\nb", "\x00", "-1", "nan", "1e400", "[", '{"a"', "http://[", "redis://:"]
) | st.sampled_from([0, -1, 1, 10**30, 1e308, -0.5, float("nan"), float("inf"), True, None])
ODD_KEYS = st.sampled_from(["type", "gate", "gates", "queue_name", "limit", "url", "", "a\nb"])
VALUES = st.recursive(
    ODD | st.text() | st.integers() | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | ODD_KEYS, inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


PLACES = [place for place in places(EXAMPLE) if place]


def changed(document: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with another value in a place."""
    found = whole = copy.deepcopy(document)
    for key in place[:-1]:
        found = found[key]
    found[place[-1]] = value
    return whole


def check_lines(error: ConfigurationError) -> None:
    assert error.problems
    for problem in error.problems:
        assert problem.path
        assert "\n" not in str(problem)
        assert len(str(problem)) < 1000


@given(st.sampled_from(PLACES), VALUES)
def test_any_value_in_any_place_is_read_or_refused_in_lines(
    place: tuple[Any, ...], value: Any
) -> None:
    try:
        settings = validated(changed(EXAMPLE, place, value), {})
    except ConfigurationError as error:
        check_lines(error)
    else:
        warnings(settings)


@given(st.dictionaries(st.text() | ODD_KEYS, VALUES, max_size=4))
def test_any_document_is_read_or_refused_in_lines(document: dict[str, Any]) -> None:
    for whole in (document, {"transport": document}, {"transport": {"queues": [document]}}):
        try:
            validated(whole, {})
        except ConfigurationError as error:
            check_lines(error)


QUEUE = {
    "queue_name": "q",
    "igw_base_url": "http://gw",
    "gate_type": "composite",
    "gate_params": {"gates": [{"gate_type": "redis-quota", "gate_params": {"limit": "1"}}]},
    "labels": {"tier": "batch"},
}
GO = {
    "url": "redis://r",
    "mode": "sentinel",
    "addrs": ["a:1"],
    "master_name": "m",
    "queues": [QUEUE],
}
GO_PLACES = [place for place in places(GO) if place]


@given(st.sampled_from(GO_PLACES), VALUES)
def test_any_document_of_the_go_implementation_is_read_or_refused_in_lines(
    place: tuple[Any, ...], value: Any
) -> None:
    document = json.dumps(changed(GO, place, value))
    try:
        migrate(["--transport=redis-sortedset", f"--transport-config={document}"], {})
    except ConfigurationError as error:
        check_lines(error)
