"""Proves what a producer writes: the contract's envelope, with the payload's own bytes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.producer import InvalidSubmission, Submission
from async_processor.producer.dead_letters import renewed
from async_processor.producer.message import Route, draft
from async_processor.wire.envelope import read

NOW = 1_764_000_000.0
ROUTE = Route(queue_name="request-sortedset")

_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_the_message_is_the_one_that_other_producers_write() -> None:
    submission = Submission(
        id="r-1",
        payload=b'{"model": "m", "model": 1e400}',
        deadline=1_764_000_100,
        created=1_763_999_999.7,
        model="m",
        metadata={"userid": "team-a"},
        headers={"x-a": "b"},
        endpoint="/v1/chat/completions",
    )
    handle, made = draft(submission, ROUTE, NOW)
    assert re.fullmatch("[0-9a-f]{32}", handle.request_token)
    assert made.body(7) == (
        b'{"internal":{"request_token":"%b","request_queue_name":"request-sortedset",'
        b'"enqueue_seq":7},"request_kind":"plain","data":{"id":"r-1","created":1763999999,'
        b'"deadline":1764000100,"payload":{"model": "m", "model": 1e400},"model":"m",'
        b'"metadata":{"userid":"team-a"},"headers":{"x-a":"b"},'
        b'"endpoint":"/v1/chat/completions"}}' % handle.request_token.encode()
    )


def test_a_mailbox_and_a_stored_payload_are_named_by_id_and_token() -> None:
    route = Route(queue_name="q", result_queue="shared", store_payload=True)
    handle, made = draft(
        Submission(id="a", payload={"x": 1}, deadline="1h"), route, NOW, mailbox=True
    )
    message = read(made.body(1))
    assert handle.has_mailbox
    assert message.result_queue_name == f"request-result:a:{handle.request_token}"
    assert message.payload_ref == f"request-payload:a:{handle.request_token}"
    assert message.request.payload is None
    assert made.payload == b'{"x":1}'


def test_without_an_id_one_is_made() -> None:
    ids = {draft(Submission(payload={}, deadline="1h"), ROUTE, NOW)[0].id for _ in range(100)}
    assert len(ids) == 100


@given(st.dictionaries(st.text(), _values, max_size=4))
def test_a_payload_of_text_keeps_its_bytes(payload: dict[str, Any]) -> None:
    text = json.dumps(payload, indent=1)
    _, made = draft(Submission(payload=text, deadline="1h"), ROUTE, NOW)
    sent = read(made.body(1)).request.payload
    assert sent == text.encode()


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("payload", {"payload": b"[1]"}),
        ("payload", {"payload": b"{"}),
        ("payload", {"payload": b'{"a":1},"evil":{"b":2}'}),
        ("payload", {"payload": b'{"a":"\xff"}'}),
        ("payload", {"payload": b"null"}),
        ("payload", {"payload": {"a": object()}}),
        ("endpoint", {"endpoint": "http://elsewhere/"}),
        ("metadata", {"metadata": {"a": 1}}),
        ("deadline", {"deadline": "soon"}),
    ],
)
def test_what_the_processor_would_refuse_is_refused_before_it_is_written(
    field: str, change: dict[str, Any]
) -> None:
    with pytest.raises(InvalidSubmission) as refusal:
        draft(Submission(**{"payload": {}, "deadline": "1h", **change}), ROUTE, NOW)
    assert refusal.value.field == field


def test_a_dead_letter_is_renewed_byte_for_byte_but_for_its_place_and_time() -> None:
    message = (
        b'{"internal":{"request_token":"t","labels":{"a":"b"},"enqueue_seq":1,"future":[1, 2]},'
        b'"request_kind":"plain","data":{"id":"r","deadline":5,"payload":{"a": 1e400},"own":null},'
        b'"also":{"x": 1}}'
    )
    assert renewed(message, 1_764_000_100, "t", 9) == (
        b'{"internal":{"request_token":"t","labels":{"a":"b"},"enqueue_seq":9,"future":[1, 2]},'
        b'"request_kind":"plain","data":{"id":"r","deadline":1764000100,"payload":{"a": 1e400},'
        b'"own":null},"also":{"x": 1}}'
    )
