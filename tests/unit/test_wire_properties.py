"""Whatever comes: reading ends in an envelope or an `InvalidMessage`, an id that stands there is
found, and nothing a producer wrote is lost or changed when the message is stored again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from async_processor.wire import scan
from async_processor.wire.envelope import Envelope, InvalidMessage, examine, read
from async_processor.wire.request import RequestKind

# JSON as text, written by hand, so that spelling, spaces and duplicates are part of it

_space = st.text(alphabet=" \t\r\n", max_size=2)
_number = st.sampled_from(
    ["0", "-0", "1.10", "1e400", "-1E-400", "123456789012345678901234567890", "0.1e+5"]
)
_spelled = st.sampled_from(
    [r"\u00e9", r"\ud83d\ude00", r"\/", r"\"", r"\\", "é", "☃", "{", "]", ",", ":", "a", r"\u0000"]
)
_halves = st.sampled_from([r"\ud800", r"\udfff", r"\uD83D"])


def _strings(*letters: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.one_of(*letters), max_size=6).map(lambda parts: f'"{"".join(parts)}"')


@st.composite
def _joined(draw: st.DrawFn, items: st.SearchStrategy[list[str]], brackets: str) -> str:
    inner = f"{draw(_space)},{draw(_space)}".join(draw(items))
    return f"{brackets[0]}{draw(_space)}{inner}{draw(_space)}{brackets[1]}"


def _containers(
    strings: st.SearchStrategy[str],
) -> st.SearchStrategy[str]:
    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return _joined(st.lists(inner, max_size=3), "[]") | _object(strings, inner)

    leaves = strings | _number | st.sampled_from(["true", "false", "null"])
    return st.recursive(leaves, grow, max_leaves=8)


def _object(
    strings: st.SearchStrategy[str], values: st.SearchStrategy[str]
) -> st.SearchStrategy[str]:
    pair = st.tuples(strings, _space, _space, values)
    pairs = pair.map(lambda parts: f"{parts[0]}{parts[1]}:{parts[2]}{parts[3]}")
    return _joined(st.lists(pairs, max_size=4), "{}")


_plain = _strings(_spelled)
_any = _strings(_spelled, _halves)
payloads = _object(_any, _containers(_any))
values = _containers(_any)


def _enveloped(data: str, unknown: str) -> str:
    return f'{{"x_outer":{unknown}, "internal" : {{"x_inner": {unknown}}},"data":{data}}}'


@given(payload=payloads, unknown=values, enveloped=st.booleans())
@example(payload=r'{"a":"\ud800"}', unknown=r'"\udfff\ud800"', enveloped=True)
def test_payload_and_unknown_fields_keep_their_bytes(
    payload: str, unknown: str, enveloped: bool
) -> None:
    data = f'{{"payload":{payload} , "x_data": {unknown}, "id": "r-1", "deadline": 5}}'
    body = (_enveloped(data, unknown) if enveloped else data).encode()
    envelope = read(body)
    assert envelope.request.payload == payload.encode()

    stored = envelope.rewritten(retry_count=1, request_queue_name="q")
    again = read(stored)
    assert again.request == envelope.request
    assert (again.retry_count, again.request_queue_name, again.bare) == (1, "q", False)
    outer = scan.members(stored)
    assert outer["data"] == data.encode()
    if enveloped:
        assert outer["x_outer"] == unknown.encode()
        assert scan.members(outer["internal"])["x_inner"] == unknown.encode()
    assert again.rewritten(retry_count=1, request_queue_name="q") == stored


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_arbitrary_bytes_are_refused_in_an_orderly_way(body: bytes) -> None:
    _is_orderly(body)


_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def _fields(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, _json))


_data = _fields(
    *("id", "created", "deadline", "payload", "model", "metadata", "headers", "endpoint"),
    *("request_queue_name", "result_queue_name", "pubsub_id", "unknown"),
)
_internal = _fields(
    *("retry_count", "queue_id", "request_token", "request_queue_name", "result_queue_name"),
    *("transport_correlation_id", "enqueue_seq", "payload_ref", "labels", "unknown"),
)
_good = {"id": "r-1", "deadline": 5, "payload": {}}


@given(
    internal=_internal | _json,
    kind=st.sampled_from(list(RequestKind)) | _json,
    data=_data | _data.map(lambda data: _good | data) | _json,
)
def test_wrong_types_anywhere_are_refused_in_an_orderly_way(
    internal: Any, kind: Any, data: Any
) -> None:
    _is_orderly(json.dumps({"internal": internal, "request_kind": kind, "data": data}).encode())
    _is_orderly(json.dumps(data).encode())


def _is_orderly(body: bytes) -> None:
    """An envelope that can be stored again, or an error; nothing else is raised."""
    match examine(body):
        case Envelope() as envelope:
            stored = envelope.rewritten(retry_count=2, request_queue_name="q")
            again = read(stored)
            assert again.request == envelope.request
            assert again.rewritten(retry_count=2, request_queue_name="q") == stored
        case InvalidMessage() as error:
            assert str(error)
            assert len(error.reason) < 250
            error.id.encode()


@given(
    request_id=st.text(min_size=1, max_size=20),
    others=_data,
    token=st.text(max_size=5),
    enveloped=st.booleans(),
    cut=st.integers(min_value=0, max_value=60),
)
def test_an_id_that_stands_there_is_found(
    request_id: str, others: dict[str, Any], token: str, enveloped: bool, cut: int
) -> None:
    data = {"id": request_id, **{name: others[name] for name in others if name != "id"}}
    message = {"internal": {"request_token": token}, "data": data} if enveloped else data
    body = json.dumps(message).encode()
    found = examine(body)
    if isinstance(found, InvalidMessage):
        assert found.id == request_id
        if enveloped:
            assert found.request_token == token
        broken = examine(body + b"}" * cut)
        assert isinstance(broken, InvalidMessage)
        assert broken.id == request_id


@given(payloads)
def test_scanning_finds_what_decoding_finds(text: str) -> None:
    expected = json.loads(text)
    found = scan.members(text.encode())
    halved = {key: value for key, value in expected.items() if key.isascii()}
    assert len(found) <= len(expected) + sum(not key.isascii() for key in expected)
    for key in halved:
        assert json.loads(found[key]) == expected[key] or expected[key] != expected[key]


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_scanning_takes_time_in_proportion(size: int) -> None:
    """A hostile message of 16 MiB must not hold the loop: no pattern here may backtrack."""
    for text in (b'{"a":"' + b"\\" * size, b'{"a":' + b'"' * size, b"{" * size, b'"\\u' * size):
        assert scan.members(text) is not None
        assert len(scan.without_halves(text)) == len(text)
