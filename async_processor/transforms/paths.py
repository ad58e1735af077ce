"""Where something stands in a JSON answer: `choices[0].message.content`, `choices[*].logprobs`.

Values are cut out as they are written and never encoded anew, so that numbers keep their digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from async_processor.transforms.base import Inapplicable
from async_processor.wire import scan

EVERY: Final = -1
"""The index of every item of a list."""

Step = str | int
"""A member's name, or the index of an item."""

_Object = dict[str, msgspec.Raw]
_List = list[msgspec.Raw]

_NAME: Final = r"[^.\[\]]+(?:\[(?:\d{1,6}|\*)\])*"
_FORM: Final = re.compile(rf"{_NAME}(?:\.{_NAME})*", re.ASCII)
_STEP: Final = re.compile(r"\[(\d+|\*)\]|([^.\[\]]+)", re.ASCII)

_object = msgspec.json.Decoder(_Object)
_list = msgspec.json.Decoder(_List)


def read_path(text: str) -> tuple[Step, ...]:
    """The steps of a path, which may begin with `$.`; raises ValueError when it is none."""
    text = text.removeprefix("$.")
    if not _FORM.fullmatch(text):
        raise ValueError("must be a path like choices[0].message.content")
    return tuple(_step(found[1], found[2]) for found in _STEP.finditer(text))


def _step(index: str | None, name: str) -> Step:
    if index is None:
        return name
    return EVERY if index == "*" else int(index)


def select(answer: bytes, path: Sequence[Step]) -> bytes:
    """What stands there: a string's own text, anything else as JSON.

    Raises:
        Inapplicable: nothing stands there, or the answer is no JSON.
    """
    value = answer
    for step in path:
        value = _part(value, step)
    return _text(value) if value.startswith(b'"') else value


def _text(value: bytes) -> bytes:
    text = scan.text_of(value)
    if text is None:
        raise Inapplicable("the text there is no UTF-8")
    return text.encode()


def _part(value: bytes, step: Step) -> bytes:
    match _parts(value), step:
        case dict() as members, str() if step in members:
            return bytes(members[step])
        case list() as items, int() if 0 <= step < len(items):
            return bytes(items[step])
    raise Inapplicable(f"nothing stands at {step!r}")


def without(answer: bytes, path: Sequence[Step]) -> bytes:
    """The answer without what stands there; itself when nothing does.

    Raises:
        Inapplicable: it looks like JSON and is none.
    """
    step, rest = path[0], path[1:]
    match _parts(answer), step:
        case dict() as members, str() if step in members:
            return msgspec.json.encode(_members_without(members, step, rest))
        case list() as items, int():
            return msgspec.json.encode(_items_without(items, step, rest))
    return answer


def _members_without(members: _Object, name: str, rest: Sequence[Step]) -> _Object:
    if rest:
        return {**members, name: _raw_without(members[name], rest)}
    return {each: value for each, value in members.items() if each != name}


def _items_without(items: _List, index: int, rest: Sequence[Step]) -> _List:
    chosen = range(len(items)) if index == EVERY else (index,)
    if rest:
        return [_raw_without(item, rest) if n in chosen else item for n, item in enumerate(items)]
    return [item for n, item in enumerate(items) if n not in chosen]


def _raw_without(value: msgspec.Raw, path: Sequence[Step]) -> msgspec.Raw:
    return msgspec.Raw(without(bytes(value), path))


def _parts(value: bytes) -> _Object | _List | None:
    """The members or items; None of what has none."""
    begin = value.lstrip()[:1]
    try:
        if begin == b"{":
            return _object.decode(value)
        return _list.decode(value) if begin == b"[" else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Inapplicable(f"the answer is no JSON: {error}") from None
