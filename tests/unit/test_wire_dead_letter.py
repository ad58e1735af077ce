"""A dead letter holds the raw message without loss, whatever its bytes."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.wire import dead_letter


def _letter(body: bytes) -> bytes:
    return dead_letter.encode(
        body, reason="poison", queue_name="q", buried_at=1764045130.5, deliveries=3
    )


@given(st.binary() | st.text().map(str.encode))
def test_a_message_comes_back_byte_for_byte(body: bytes) -> None:
    letter = dead_letter.decode(_letter(body))
    assert letter.body == body
    assert (letter.reason, letter.queue_name) == ("poison", "q")
    assert (letter.buried_at, letter.deliveries) == (1764045130.5, 3)


def test_a_readable_message_can_be_read_in_the_letter() -> None:
    assert json.loads(_letter(b'{"id": "r-1"}')) == {
        "reason": "poison",
        "queue_name": "q",
        "buried_at": 1764045130.5,
        "deliveries": 3,
        "message": '{"id": "r-1"}',
    }


def test_a_message_that_is_not_utf8_stands_in_base64() -> None:
    assert json.loads(_letter(b"\xff"))["message_base64"] == "/w=="


def test_what_is_no_dead_letter_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        dead_letter.decode(b'{"id": "r-1"}')
