"""Structured logs: one record, one line; JSON in a container, colours on a terminal.

Every part logs events: constant names with fields, never sentences built from values.
These promises hold for whatever is logged:

* no secret: URLs lose their passwords, fields and headers named like a secret lose their values;
* no forged line: control characters in values are written as escapes;
* no flood: a warning or error that repeats (same event about the same thing) goes out at once,
  then at most every 10 s with `suppressed`, the number of those held back.

What cannot be written (the disk is full, the reader is gone) is lost, and nothing else comes of it.

Records below the level cost a method call: nothing is formatted. Message bodies are never logged.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, TextIO, cast

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger, Processor

from async_processor.clock import Clock, SystemClock
from async_processor.telemetry.masking import MASK, is_secret, mask_url, one_line
from async_processor.telemetry.repeats import Repeats

_Event = MutableMapping[str, Any]


class LogFormat(StrEnum):
    """`AUTO` is console on a terminal and JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


def get_logger(name: str) -> FilteringBoundLogger:
    """A module's logger; may be made before `configure`."""
    return cast("FilteringBoundLogger", structlog.get_logger(component=name))


def configure(
    *,
    level: str = "info",
    log_format: LogFormat = LogFormat.AUTO,
    stream: TextIO | None = None,
    clock: Clock | None = None,
    process: int | None = None,
) -> None:
    """Set up logging for the process; libraries' own warnings come out in the same form.

    `level` is debug, info, warning or error. `stream` is standard error by default. Of several
    processes each record says which one's it is, `process`.
    """
    out = stream or sys.stderr
    colours = out.isatty()
    console = log_format is LogFormat.CONSOLE or (log_format is LogFormat.AUTO and colours)
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            *([_Of(process)] if process is not None else []),
            Repeats(clock or SystemClock()),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            presentable,
            *(_console(colours=colours) if console else _json()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", LossyStream(out))),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_LibraryRecords()], level=logging.WARNING, force=True)


class _Of:
    """Processor: says whose record it is."""

    def __init__(self, process: int) -> None:
        self._process = process

    def __call__(self, _logger: Any, _method: str, event: _Event) -> _Event:
        event["process"] = self._process
        return event


class LossyStream:
    """A stream for records: an error of the system loses the record and ends nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def _json() -> list[Processor]:
    return [structlog.processors.JSONRenderer(serializer=_encode_json)]


def _console(*, colours: bool) -> list[Processor]:
    renderer = structlog.dev.ConsoleRenderer(
        colors=colours, exception_formatter=structlog.dev.plain_traceback
    )
    return [_indent_exception, renderer]


def _encode_json(event: _Event, **_: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def presentable(_logger: Any, _method: str, event: _Event) -> _Event:
    """Processor: no secrets, and nothing that could end a line or begin another."""
    for name, value in event.items():
        if name != "exception":
            event[name] = _shown(name, value)
        else:
            event[name] = "\n".join(map(_shown_text, str(value).splitlines()))
    return event


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


def _indent_exception(_logger: Any, _method: str, event: _Event) -> _Event:
    """Processor: no line of a traceback can pass for a record, since records aren't indented."""
    if "exception" in event:
        event["exception"] = "  | " + event["exception"].replace("\n", "\n  | ")
    return event


_library_log: Final = structlog.get_logger()


class _LibraryRecords(logging.Handler):
    """Passes what libraries log through `logging` on to our own records."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # a library whose arguments do not fit its own format
            message = str(record.msg)
        _library_log.log(
            min(record.levelno // 10 * 10, logging.CRITICAL),  # libraries make up their own levels
            "library_message",
            component=record.name,
            key=str(record.msg),
            message=message,
            exc_info=record.exc_info,
        )
