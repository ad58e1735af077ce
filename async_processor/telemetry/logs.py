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
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, TextIO

from async_processor.clock import Clock
from async_processor.telemetry.journal import Journal, StreamJournal
from async_processor.telemetry.presenting import Record, as_json, for_people, in_colours


class LogFormat(StrEnum):
    """`AUTO` is console on a terminal and JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class Logger:
    """Writes records that all have these fields; `bind` makes one with more of them."""

    journal: ClassVar[Journal] = StreamJournal()
    """The one of the process; before `configure`, warnings and errors go to standard error."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def bind(self, **fields: Any) -> Logger:
        """One whose records have these fields too."""
        return Logger({**self._fields, **fields})

    def debug(self, event: str, /, **fields: Any) -> None:
        self.log(logging.DEBUG, event, **fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self.log(logging.INFO, event, **fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self.log(logging.WARNING, event, **fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self.log(logging.ERROR, event, **fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """An error, with the traceback of what is being handled."""
        self.log(logging.ERROR, event, exc_info=sys.exception(), **fields)

    def log(
        self, level: int, event: str, /, *, exc_info: BaseException | None = None, **fields: Any
    ) -> None:
        """A record of a level of `logging`, with the traceback of an error."""
        if level >= Logger.journal.level:
            Logger.journal.write(level, {**self._fields, **fields, "event": event}, exc_info)


def get_logger(name: str) -> Logger:
    """A module's logger; may be made before `configure`."""
    return Logger({"component": name})


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
    Logger.journal = StreamJournal(
        level=logging.getLevelNamesMapping()[level.upper()],
        stream=out,
        form=_form(log_format, terminal=out.isatty()),
        clock=clock,
        process=process,
    )
    logging.basicConfig(handlers=[_LibraryRecords()], level=logging.WARNING, force=True)


def _form(log_format: LogFormat, *, terminal: bool) -> Callable[[Record], str]:
    if log_format is LogFormat.JSON or (log_format is LogFormat.AUTO and not terminal):
        return as_json
    return in_colours if terminal else for_people


class _LibraryRecords(logging.Handler):
    """Passes what libraries log through `logging` on to our own records."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # a library whose arguments do not fit its own format
            message = str(record.msg)
        get_logger(record.name).log(
            min(record.levelno // 10 * 10, logging.CRITICAL),  # libraries make up their own levels
            "library_message",
            key=str(record.msg),
            message=message,
            exc_info=record.exc_info[1] if record.exc_info else None,
        )
