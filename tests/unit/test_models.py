"""Another model is asked for, and no other byte of a payload changes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.transforms.models import Models

NEW = Models({"*": "new"})
RENAMED = Models({"old": "new", "a/b": 'say "new"'})
BOTH = Models({"old": "new", "*": "other"})


@pytest.mark.parametrize(
    ("models", "payload", "sent"),
    [
        (NEW, b'{"model":"m","prompt":"hi"}', b'{"model":"new","prompt":"hi"}'),
        (NEW, b'{ "a" : 1 , "model"\t:\n "m" }', b'{ "a" : 1 , "model"\t:\n "new" }'),
        (NEW, b'{"model":null}', b'{"model":"new"}'),
        (NEW, b'{"model":{"model":"m"}}', b'{"model":"new"}'),
        (NEW, b'{"a":{"model":"m"}}', b'{"model":"new","a":{"model":"m"}}'),
        (NEW, b"{}", b'{"model":"new"}'),
        (NEW, b" { }", b' {"model":"new" }'),
        (NEW, b'{"a":1}', b'{"model":"new","a":1}'),
        (NEW, b'{"model":"m","model":"n"}', b'{"model":"new","model":"new"}'),
        (NEW, b'{"mod\\u0065l":"m"}', b'{"mod\\u0065l":"new"}'),
        (NEW, b'{"model\\n":"m","a":1e400}', b'{"model":"new","model\\n":"m","a":1e400}'),
        (NEW, b'{"model":"\\ud800"}', b'{"model":"new"}'),
        (RENAMED, b'{"model":"old"}', b'{"model":"new"}'),
        (RENAMED, b'{"model":"\\u006fld"}', b'{"model":"new"}'),
        (RENAMED, b'{"model":"a\\/b"}', b'{"model":"say \\"new\\""}'),
        (RENAMED, b'{"model":"older","x":"old"}', b'{"model":"older","x":"old"}'),
        (RENAMED, b'{"model":["old"]}', b'{"model":["old"]}'),
        (RENAMED, b'{"model":"m","model":"old"}', b'{"model":"m","model":"new"}'),
        (RENAMED, b'{"prompt":"old"}', b'{"prompt":"old"}'),
        (BOTH, b'{"model":"old"}', b'{"model":"new"}'),
        (BOTH, b'{"model":"m"}', b'{"model":"other"}'),
        (NEW, b"[1]", b"[1]"),
        (NEW, b"", b""),
        (NEW, b'"{"', b'"{"'),
    ],
)
def test_what_is_sent(models: Models, payload: bytes, sent: bytes) -> None:
    assert models.replaced(payload) == sent


def test_what_stays_is_the_very_same_bytes() -> None:
    payload = b'{"prompt": "hi", "model": "m"}'
    assert RENAMED.replaced(payload) is payload


SPACES = st.sampled_from(["", " ", "\n\t", "  "])
NAMES = st.sampled_from(
    ["model", "mod\\u0065l", "\\u006dodel", "Model", "models", "a", "", 'a\\"b']
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["model", "b", "}{"]), inner, max_size=3)
    ),
    max_leaves=6,
).map(lambda value: json.dumps(value, ensure_ascii=False))
VALUES = JSON | st.sampled_from(
    ['"old"', '"\\u006fld"', '"}, \\"model\\": \\"old\\""', "1e999", "-0"]
)
MEMBERS = st.lists(st.tuples(NAMES, VALUES, SPACES, SPACES), max_size=6)


def written(members: Sequence[tuple[str, str, str, str]], models: Models | None = None) -> bytes:
    """The object as it is written; with models, by another way than the code's."""
    texts = []
    for name, value, before, after in members:
        is_model = models is not None and json.loads(f'"{name}"') == "model"
        new = '"new"' if is_model and (models is NEW or json.loads(value) == "old") else value
        texts.append(f'{before}"{name}"{after}:{before}{new}{after}')
    return ("{" + ",".join(texts) + "}").encode()


@given(MEMBERS)
def test_every_model_of_the_object_itself_is_replaced_and_nothing_else(
    members: list[tuple[str, str, str, str]],
) -> None:
    payload, expected = written(members), written(members, NEW)
    if not any(json.loads(f'"{name}"') == "model" for name, *_ in members):
        comma = b"," if members else b""
        expected = re.sub(rb"^\{", b'{"model":"new"' + comma, payload)
    assert NEW.replaced(payload) == expected
    assert json.loads(expected)["model"] == "new"


@given(MEMBERS)
def test_only_the_old_name_is_replaced_by_a_map(members: list[tuple[str, str, str, str]]) -> None:
    assert Models({"old": "new"}).replaced(written(members)) == written(members, RENAMED)


@given(st.binary(max_size=40) | st.text('{}[]:,"\\ model', max_size=40).map(str.encode))
def test_nothing_that_a_stored_payload_may_hold_breaks_it(payload: bytes) -> None:
    NEW.replaced(payload)
    assert Models({"old": "new"}).replaced(payload) == payload or b"old" in payload
