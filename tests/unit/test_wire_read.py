"""Every rule of the contract's table of request fields, and how a broken message is answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from async_processor.testing.messages import bare_message, message
from async_processor.wire.envelope import Envelope, InvalidMessage, examine, read
from async_processor.wire.request import RequestKind

TOKEN = "0123456789abcdef0123456789abcdef"

FIELDS = {"id": "r-1", "deadline": 1764045130, "payload": {"a": 1}}


def bare(**fields: Any) -> bytes:
    """A bare request; None as a value removes nothing, it stands as null."""
    return json.dumps(FIELDS | fields).encode()


def without(*names: str) -> bytes:
    return json.dumps({name: FIELDS[name] for name in FIELDS if name not in names}).encode()


def refused(body: bytes) -> InvalidMessage:
    with pytest.raises(InvalidMessage) as caught:
        read(body)
    return caught.value


# Shapes


def test_a_bare_request_is_read() -> None:
    envelope = read(bare(model="m", metadata={"userid": "a"}, headers={"x": "y"}))
    assert (envelope.bare, envelope.kind) == (True, RequestKind.PLAIN)
    assert envelope.request.model == "m"
    assert envelope.request.metadata == {"userid": "a"}
    assert envelope.request.headers == {"x": "y"}


@pytest.mark.parametrize("outer", [{"internal": {}}, {"request_kind": "redis"}, {}])
def test_an_envelope_may_lack_anything_but_its_data(outer: dict[str, Any]) -> None:
    envelope = read(json.dumps({**outer, "data": FIELDS}).encode())
    assert not envelope.bare
    assert envelope.request.id == "r-1"


@pytest.mark.parametrize(
    "own", [{"data": "x"}, {"internal": 7}, {"request_kind": []}, {"data": 1, "internal": None}]
)
def test_a_bare_request_may_have_fields_called_like_an_envelopes(own: dict[str, Any]) -> None:
    envelope = read(bare(**own))
    assert envelope.bare
    assert envelope.request.id == "r-1"


def test_null_is_as_good_as_absent() -> None:
    internal = dict.fromkeys(
        ["retry_count", "queue_id", "request_token", "enqueue_seq", "payload_ref", "labels"]
    )
    nothing = dict.fromkeys(["created", "model", "metadata", "headers", "endpoint"])
    body = json.dumps({"internal": internal, "request_kind": None, "data": FIELDS | nothing})
    envelope = read(body.encode())
    assert (envelope.kind, envelope.request_token) == (RequestKind.PLAIN, "")
    assert envelope.labels == {}
    assert envelope.request.metadata == {}
    assert envelope.request.created is None


@pytest.mark.parametrize("kind", ["", "Redis", "kafka"])
def test_an_unknown_kind_is_refused(kind: str) -> None:
    body = json.dumps({"internal": {}, "request_kind": kind, "data": FIELDS}).encode()
    if not kind:
        assert read(body).kind is RequestKind.PLAIN
        return
    error = refused(body)
    assert (error.field, error.id) == ("request_kind", "r-1")


def test_settled_routing_beats_what_the_caller_wrote() -> None:
    body = message("r-1", internal={"result_queue_name": "a"}, result_queue_name="b")
    assert read(body).result_queue_name == "a"
    assert read(message("r-1", result_queue_name="b")).result_queue_name == "b"
    assert read(bare_message("r-1", result_queue_name="b")).result_queue_name == "b"


# id


@pytest.mark.parametrize(
    "body", [without("id"), bare(id=""), bare(id=None), bare(id=5), bare(id=["x"]), bare(id=True)]
)
def test_an_id_is_required(body: bytes) -> None:
    error = refused(body)
    assert error.field == "id"
    assert error.id == ""


@pytest.mark.parametrize("request_id", ["x" * 10_000, "a\x00b", "é☃😀", " ", "a:b", '"'])
def test_an_id_may_be_any_other_string(request_id: str) -> None:
    assert read(bare(id=request_id)).request.id == request_id


# deadline, created


@pytest.mark.parametrize(
    ("deadline", "seconds"),
    [
        (1764045130, 1764045130.0),
        (1764045130.25, 1764045130.25),
        ("1764045130", 1764045130.0),
        ("1764045130.5", 1764045130.5),
        ("1.76e9", 1.76e9),
        (1764045130000, 1764045130000.0),
        (1e308, 1e308),
        (0.5, 0.5),
        (10**30, 1e30),
    ],
)
def test_a_deadline_is_a_number_or_a_string_that_is_one(deadline: Any, seconds: float) -> None:
    assert read(bare(deadline=deadline)).request.deadline == seconds


@pytest.mark.parametrize(
    "deadline",
    [
        *(-1, 0, -0.0, None, True, False, [], {}, ["1"]),
        *("", "soon", "nan", "NaN", "inf", "Infinity", "1e400", "-5", "+5"),
        *("1_000", "0x10", "1 2", "\uff11\uff17"),
    ],
)
def test_any_other_deadline_is_refused(deadline: Any) -> None:
    error = refused(bare(deadline=deadline))
    assert (error.field, error.id) == ("deadline", "r-1")


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 400, "9" * 5000])
def test_a_number_beyond_all_floats_is_no_deadline(number: str) -> None:
    error = refused(b'{"id":"r-1","payload":{},"deadline":' + number.encode() + b"}")
    assert (error.field, error.id) == ("deadline", "r-1")
    assert len(str(error)) < 200


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "01", ".5", "5."])
def test_what_is_not_json_is_no_deadline_but_the_id_is_read(number: str) -> None:
    error = refused(b'{"id":"r-1","deadline":' + number.encode() + b',"payload":{}}')
    assert error.id == "r-1"


def test_a_missing_deadline_is_refused() -> None:
    assert refused(without("deadline")).field == "deadline"


def test_created_is_optional_but_a_number() -> None:
    assert read(bare()).request.created is None
    assert read(bare(created=0)).request.created is None
    assert read(bare(created=1764044000)).request.created == 1764044000
    assert read(bare(created="1764044000.5")).request.created == 1764044000.5
    assert refused(bare(created="yesterday")).field == "created"
    assert refused(bare(created=True)).field == "created"


# payload


@pytest.mark.parametrize(
    "payload", ['"text"', "[1]", "5", "true", '"{}"', "-1", "[]", "false", "1e400"]
)
def test_a_payload_is_an_object(payload: str) -> None:
    error = refused(b'{"id":"r-1","deadline":5,"payload":' + payload.encode() + b"}")
    assert (error.field, error.id) == ("payload", "r-1")


@pytest.mark.parametrize("body", [without("payload"), bare(payload=None)])
def test_a_payload_is_required(body: bytes) -> None:
    assert refused(body).field == "payload"


@pytest.mark.parametrize(
    "payload",
    [
        "{}",
        '{ "b" : 1,\t"a" : 2 , "b":3 }',
        '{"n": 123456789012345678901234567890, "f": 1e400, "g": -0.0, "h": 1.10}',
        r'{"u": "\u00e9\ud83d\ude00\/\u0000", "é": "☃"}',
        r'{"half": "\ud800", "other": "\udc00 \ud800\ud800", "not one": "\\ud800"}',
        '{\n"a"\n:\r\n1}',
    ],
)
@pytest.mark.parametrize("enveloped", [True, False])
def test_a_payload_keeps_its_bytes(payload: str, enveloped: bool) -> None:
    body = b'{"id": "r-1", "deadline": 5, "payload":  ' + payload.encode() + b" }"
    if enveloped:
        body = b'{"internal": {}, "data": ' + body + b"}"
    envelope = read(body)
    assert envelope.request.payload == payload.encode()
    again = read(envelope.rewritten(retry_count=1, request_queue_name="q"))
    assert again.request.payload == payload.encode()


def test_a_stored_payload_may_be_absent() -> None:
    ref = f"request-payload:r-1:{TOKEN}"
    envelope = read(message("r-1", token=TOKEN, internal={"payload_ref": ref}, payload=None))
    assert envelope.request.payload is None
    assert envelope.payload_ref == ref


@pytest.mark.parametrize(
    ("token", "ref"),
    [
        (TOKEN, "request-payload:r-2:" + TOKEN),
        (TOKEN, "request-payload:r-1:another"),
        (TOKEN, "request-sortedset"),
        ("", "request-payload:r-1:"),
        ("", "request-payload:r-1:" + TOKEN),
    ],
)
def test_a_message_may_name_its_own_stored_payload_only(token: str, ref: str) -> None:
    error = refused(message("r-1", token=token, internal={"payload_ref": ref}))
    assert (error.field, error.id) == ("internal.payload_ref", "r-1")


# metadata, headers, labels, the rest of internal


@pytest.mark.parametrize("field", ["metadata", "headers"])
@pytest.mark.parametrize("value", [{"a": 1}, {"a": None}, [], "x", 5, {"a": {"b": "c"}}, True])
def test_metadata_and_headers_map_strings_to_strings(field: str, value: Any) -> None:
    error = refused(bare(**{field: value}))
    assert (error.field, error.id) == (field, "r-1")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("retry_count", "2"),
        ("retry_count", True),
        ("enqueue_seq", 1.5),
        ("enqueue_seq", "1"),
        ("queue_id", 5),
        ("request_token", ["x"]),
        ("result_queue_name", {}),
        ("labels", {"a": 1}),
    ],
)
def test_internal_fields_have_their_types(field: str, value: Any) -> None:
    error = refused(message("r-1", internal={field: value}))
    assert (error.field, error.id) == (f"internal.{field}", "r-1")


def test_a_negative_retry_count_counts_as_none() -> None:
    assert read(message("r-1", internal={"retry_count": -3})).retry_count == 0


# Broken messages


def test_the_sender_of_a_broken_message_is_told() -> None:
    error = refused(
        message(
            "r-1",
            token=TOKEN,
            internal={"result_queue_name": "mine"},
            metadata={"userid": "team-a"},
            payload=[],
        )
    )
    assert (error.id, error.request_token, error.result_queue_name) == ("r-1", TOKEN, "mine")
    assert error.metadata == {"userid": "team-a"}


@pytest.mark.parametrize(
    "body",
    [
        b'{"id": "r-1", "deadline": 5, "payload": {"prompt": "cut of',
        b'{"id": "r-1", "deadline": 5, "payload": {"prompt": "\xff"}}',
        b'{"id": "r-1", "deadline": 5, "payload": {"prompt": "\x00"}}',
        b'{"id": "r-1", "deadline": 5, "payload": {}} trailing',
        b'{"id": "r-1", "deadline": 5, "payload": {},}',
        b'{"internal": {}, "data": {"id": "r-1", "deadline": 5, "payload": {]}}}',
        b'\xef\xbb\xbf{"id": "r-1", "deadline": 5, "payload": {}}',
        b'{"\\u0069d": "r-1", "deadline": "x", "payload": {}}',
    ],
)
def test_an_id_is_found_in_what_is_left_of_a_message(body: bytes) -> None:
    assert refused(body).id == "r-1"


@pytest.mark.parametrize("where", ["payload", "metadata", "unknown"])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_hundred_thousand_levels_are_refused_with_the_id(
    where: str, opening: bytes, closing: bytes
) -> None:
    deep = opening * 100_000 + b"1" + closing * 100_000
    body = b'{"deadline": 5, "%s": %s, "id": "r-1"}' % (where.encode(), deep)
    error = refused(body)
    assert error.id == "r-1"
    assert len(str(error)) < 200


@pytest.mark.parametrize(
    "body", [b"", b" ", b"null", b"[]", b"5", b'"id"', b"\xff\xfe", b"\x00", b"{", b'{"id"', b"}{"]
)
def test_what_is_no_message_at_all_is_refused_without_an_id(body: bytes) -> None:
    assert refused(body).id == ""


def test_examine_returns_the_error_that_read_raises() -> None:
    assert isinstance(examine(bare()), Envelope)
    error = examine(b"null")
    assert isinstance(error, InvalidMessage)
    assert str(error) == str(refused(b"null"))


SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    "body",
    [
        bare(payload=SECRET),
        bare(payload=[SECRET]),
        bare(metadata={"a": [SECRET]}),
        bare(metadata=SECRET),
        bare(metadata={SECRET: 1}),
        bare(headers={"authorization": [SECRET]}),
        bare(headers=SECRET),
        bare(headers={SECRET: None}),
        bare(payload={"p": SECRET})[:-2],
        bare(payload={"p": SECRET}).replace(b"}", b"\xff}"),
        bare(payload={"p": SECRET}).replace(b"}", b"\x01}"),
        message("r-1", internal={"labels": {"a": [SECRET]}}),
    ],
)
def test_no_error_shows_what_stands_in_a_body(body: bytes) -> None:
    error = refused(body)
    assert SECRET not in str(error)
    assert SECRET not in error.field


@pytest.mark.parametrize(
    "body",
    [
        bare(deadline="soon\nforged: line\u2028x" + "y" * 500),
        bare(endpoint="no\r\nslash" + "y" * 500),
        bare(endpoint="\U0001f600" * 500),
        json.dumps({"request_kind": "k\n" * 300, "data": FIELDS}).encode(),
        message("r-1", internal={"payload_ref": "x\n\x1b[31m" * 300}),
    ],
)
def test_what_an_error_shows_is_short_and_on_one_line(body: bytes) -> None:
    text = str(refused(body))
    assert len(text) < 200
    assert text.isprintable()


# Storing again


def test_unknown_fields_survive_at_all_three_levels() -> None:
    body = (
        b'{"z": 1e400, "internal": {"dispatch_epoch": 7, "x": {"b":1, "a":2}}, "data":'
        b' {"id": "r-1", "deadline": 5, "payload": {}, "extra": [1.10, "\\u00e9"]}, "y": null}'
    )
    again = read(body).rewritten(retry_count=2, request_queue_name="q")
    assert b'"z":1e400' in again
    assert b'"y":null' in again
    assert b'"dispatch_epoch":7' in again
    assert b'"x":{"b":1, "a":2}' in again
    assert b'"extra": [1.10, "\\u00e9"]' in again


def test_only_the_routing_changes() -> None:
    envelope = read(message("r-1", token=TOKEN, seq=4, internal={"queue_id": "q-7"}))
    again = read(envelope.rewritten(retry_count=3, request_queue_name="elsewhere"))
    assert (again.retry_count, again.request_queue_name) == (3, "elsewhere")
    assert (again.request, again.request_token) == (envelope.request, TOKEN)
    assert (again.enqueue_seq, again.queue_id, again.score) == (4, "q-7", envelope.score)


@pytest.mark.parametrize(
    ("stored", "told", "found"),
    [
        ({}, None, False),
        ({}, True, True),
        ({"dispatched": None}, None, False),
        ({"dispatched": True}, None, True),
        ({"dispatched": True}, False, False),
    ],
)
def test_that_a_request_was_sent_before_travels_with_it(
    stored: dict[str, Any], told: bool | None, found: bool
) -> None:
    body = message("r-1", internal=stored)
    assert read(body).dispatched is bool(stored.get("dispatched"))
    again = read(body).rewritten(retry_count=0, request_queue_name="q", dispatched=told)
    assert read(again).dispatched is found


def test_how_the_last_attempt_failed_travels_with_the_request() -> None:
    first = read(message("r-1"))
    assert first.last_error == ""
    failed = read(first.rewritten(retry_count=1, request_queue_name="q", last_error="HTTP 503"))
    assert failed.last_error == "HTTP 503"
    moved = read(failed.rewritten(retry_count=1, request_queue_name="q", dispatched=True))
    assert moved.last_error == "HTTP 503"
