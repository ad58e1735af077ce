"""Proves how `submit` reads its input, and that a bad line is named with field and value."""

from __future__ import annotations

import io

import pytest

from async_processor.cli.lines import BadLine, read_lines
from async_processor.producer import Submission


def _read(text: bytes) -> list[tuple[int, Submission]]:
    return [(line.number, line.submission) for line in read_lines(io.BytesIO(text), "1h")]


def test_requests_and_bare_payloads_may_be_mixed() -> None:
    text = (
        b'{"model":"m", "prompt":"hi"}\n'
        b"\n"
        b'{"id":"r-1","deadline":"30m","payload":{"a": 1.0},"metadata":{"userid":"t"}}\n'
        b'{"internal":{},"request_kind":"plain","data":{"id":"r-2","deadline":5,"payload":{}}}'
    )
    (first, bare), (third, request), (fourth, enveloped) = _read(text)
    assert (first, third, fourth) == (1, 3, 4)
    assert (bare.payload, bare.deadline, bare.id) == (b'{"model":"m", "prompt":"hi"}\n', "1h", "")
    assert (request.id, request.deadline, request.payload) == ("r-1", "30m", b'{"a": 1.0}')
    assert request.metadata == {"userid": "t"}
    assert (enveloped.id, enveloped.deadline) == ("r-2", 5)


def test_one_document_over_several_lines() -> None:
    assert _read(b'{\n "id": "r",\n "payload": {"a": 1}\n}\n')[0][1].payload == b'{"a": 1}'


def test_an_array_of_objects() -> None:
    read = _read(b'[{"a": 1},\n {"id":"r","payload":{"b":2}}]')
    assert [(number, one.id, one.payload) for number, one in read] == [
        (1, "", b'{"a": 1}'),
        (2, "r", b'{"b":2}'),
    ]


def test_nothing_holds_nothing() -> None:
    assert _read(b"\n  \n") == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"oops", "'oops' is not a JSON object"),
        (b"[1]", "is not a JSON object"),
        (b'{"id":"r","payload":{},"dedline":1}', "unknown field 'dedline'; did you mean deadline?"),
        (b'{"id":7,"payload":{}}', "id: '7' is not allowed"),
        (b'{"id":"r","payload":{},"metadata":{"a":1}}', "metadata: '{\"a\":1}' is not allowed"),
        (b'{"id":"r","payload":{},"deadline":[]}', "deadline: '[]' is not allowed"),
    ],
)
def test_a_bad_line_is_named_with_field_and_value(line: bytes, complaint: str) -> None:
    with pytest.raises(BadLine) as error:
        _read(b'{"a":1}\n' + line + b"\n")
    assert error.value.number == 2
    assert f"line 2: {complaint}" in str(error.value) or complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_lines_are_read_one_by_one() -> None:
    source = io.BytesIO(b'{"a":1}\n{"a":2}\n' + b'{"a":3}\n' * 1000)
    lines = read_lines(source, "1h")
    next(lines)
    next(lines)
    assert source.tell() == len(b'{"a":1}\n{"a":2}\n')
