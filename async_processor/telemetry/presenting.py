"""How a record is shown: as one line of JSON, or as one for people, without secrets in either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from async_processor.telemetry.masking import MASK, is_secret, mask_url, one_line

Record = dict[str, Any]
"""An event, its level, its time, and whatever else there is to say of it."""

_RESET: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_DIM: Final = "\x1b[2m"
_KEY: Final = "\x1b[36m"
_VALUE: Final = "\x1b[35m"
_LEVELS: Final = {
    "debug": "\x1b[32m",
    "info": "\x1b[32m",
    "warning": "\x1b[33m",
    "error": "\x1b[31m",
    "critical": "\x1b[31m",
}
_ELSEWHERE: Final = ("timestamp", "level", "event", "exception")
"""What has a place of its own on a line for people."""


def presentable(record: Mapping[str, Any]) -> Record:
    """No secrets, and nothing that could end a line or begin another but in a traceback."""
    return {name: _presented(name, value) for name, value in record.items()}


def as_json(record: Record) -> str:
    """A line for machines; the record is presentable."""
    return msgspec.json.encode(record, enc_hook=str).decode()


def for_people(record: Record) -> str:
    """A line for people, and the lines of a traceback below it; the record is presentable.

    Those are indented, so that none can pass for a record.
    """
    parts = [record["timestamp"], f"[{record['level']:<8}]", f"{record['event']:<30}"]
    parts += [f"{name}={text}" for name, text in _fields(record)]
    return " ".join(parts).rstrip() + _indented(record)


def in_colours(record: Record) -> str:
    """Like `for_people`, on a terminal."""
    level, event = record["level"], record["event"]
    parts = [
        f"{_DIM}{record['timestamp']}{_RESET}",
        f"[{_LEVELS.get(level, '')}{_BOLD}{level:<8}{_RESET}]",
        f"{_BOLD}{event:<30}{_RESET}",
    ]
    parts += [f"{_KEY}{name}{_RESET}={_VALUE}{text}{_RESET}" for name, text in _fields(record)]
    return " ".join(parts) + _indented(record)


def _fields(record: Record) -> list[tuple[str, str]]:
    return [(name, _text(value)) for name, value in record.items() if name not in _ELSEWHERE]


def _text(value: Any) -> str:
    """Quoted where it could not be told from the next field."""
    if isinstance(value, str) and value and " " not in value:
        return value
    return repr(value)


def _indented(record: Record) -> str:
    trace = record.get("exception", "")
    return "".join(f"\n  | {line}" for line in trace.splitlines())


def _presented(name: str, value: Any) -> Any:
    if name != "exception":
        return _shown(name, value)
    return "\n".join(map(_shown_text, str(value).splitlines()))


def _shown(name: str, value: Any) -> Any:
    if is_secret(name):
        return MASK if value else value
    if isinstance(value, str):
        return _shown_text(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {_shown_text(str(key)): _shown(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_shown(name, item) for item in value]
    return _shown_text(str(value))


def _shown_text(text: str) -> str:
    return one_line(mask_url(text))
