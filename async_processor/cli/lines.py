"""Reads what `submit` is given: JSON or JSONL, of requests or of bare payloads.

JSONL is read line by line, so the size of a file does not matter. Where the first line is not a
whole object, the input is one JSON document: an object over several lines, or an array of objects.
Payloads keep their own bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, BinaryIO, Final

import msgspec

from async_processor.errors import AsyncProcessorError
from async_processor.producer import Submission
from async_processor.producer.deadline import Deadline


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    payload: msgspec.Raw = msgspec.Raw(b"null")
    id: str | None = None
    created: int | float | None = None
    deadline: int | float | str | None = None
    model: str | None = None
    metadata: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    endpoint: str | None = None


_DOCUMENT_BYTES: Final = 64 * 2**20
"""A single JSON document is read whole; what is larger has to be JSONL."""

_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_objects: Final = msgspec.json.Decoder(list[msgspec.Raw])
_request: Final = msgspec.json.Decoder(_Request)
_FIELDS: Final = tuple(_Request.__struct_fields__)


class BadLine(AsyncProcessorError):
    """A line of the input that cannot be submitted; `number` counts from 1."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}")
        self.number = number
        self.reason = reason


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One request of the input; `number` is its line, or its place in an array, from 1."""

    number: int
    submission: Submission


def read_lines(source: BinaryIO, deadline: Deadline) -> Iterator[Line]:
    """The requests of an input; those without a deadline get the given one.

    Raises:
        BadLine: at the first that is none.
    """
    for number, text in _texts(source):
        yield Line(number=number, submission=_read(number, text, deadline))


def _texts(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    numbered = enumerate(source, start=1)
    for number, line in numbered:
        if not line.strip():
            continue
        if not _is_object(line):
            yield from _document(number, line + source.read(_DOCUMENT_BYTES))
            return
        yield number, line
        break
    yield from ((number, line) for number, line in numbered if line.strip())


def _is_object(text: bytes) -> bool:
    try:
        _object.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _document(number: int, text: bytes) -> Iterator[tuple[int, bytes]]:
    """One object, or an array of them, over any number of lines from line `number` on."""
    if text.lstrip().startswith(b"["):
        try:
            yield from ((place, bytes(raw)) for place, raw in enumerate(_objects.decode(text), 1))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadLine(number, f"is not a JSON array: {error}") from None
        return
    if not _is_object(text):
        first = text.partition(b"\n")[0]
        raise BadLine(number, f"{_shown(first)} is not a JSON object")
    yield number, text


def _read(number: int, text: bytes, deadline: Deadline) -> Submission:
    try:
        fields = _object.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(number, f"{_shown(text)} is not a JSON object: {error}") from None
    if _is_request(fields):
        return _submission(number, text, deadline)
    if "data" in fields and ("internal" in fields or "request_kind" in fields):
        return _submission(number, bytes(fields["data"]), deadline)
    return Submission(payload=text, deadline=deadline)


def _is_request(fields: dict[str, Any]) -> bool:
    return "payload" in fields or {"id", "deadline"} <= fields.keys()


def _submission(number: int, text: bytes, deadline: Deadline) -> Submission:
    try:
        request = _request.decode(text)
    except msgspec.MsgspecError as error:
        raise BadLine(number, _worded(error, text)) from None
    given = {name: getattr(request, name) for name in _FIELDS if name != "payload"}
    given = {name: value for name, value in given.items() if value is not None}
    return Submission(payload=bytes(request.payload), **{"deadline": deadline, **given})


def _worded(error: msgspec.MsgspecError, text: bytes) -> str:
    """Name the field, what stands there, and what is allowed."""
    fields = _object.decode(text)
    unknown = next((name for name in fields if name not in _FIELDS), None)
    if unknown is not None:
        close = get_close_matches(unknown, _FIELDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(_FIELDS)}"
        return f"unknown field {unknown!r}; {hint}"
    reason, _, path = str(error).partition(" - at `$.")
    field = path.rstrip("`").partition("[")[0]
    value = _shown(bytes(fields[field])) if field in fields else "it"
    return f"{field}: {value} is not allowed: {reason.replace('`', '').replace(' | null', '')}"


def _shown(value: bytes) -> str:
    text = value.decode(errors="replace").strip()
    return repr(text if len(text) <= 40 else text[:37] + "...")
