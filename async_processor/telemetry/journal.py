"""Where the records of a process go."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from traceback import format_exception
from typing import Protocol, TextIO

from async_processor.clock import Clock, SystemClock
from async_processor.telemetry.presenting import Record, as_json, presentable
from async_processor.telemetry.repeats import Repeats


class Journal(Protocol):
    """Takes records from a level of `logging` on; to others nothing is done at all."""

    level: int

    def write(self, level: int, record: Record, error: BaseException | None) -> None:
        """One record, which is the journal's from now on, with the traceback of an error."""
        ...


class StreamJournal:
    """Writes each record to a stream, as `form` makes it from a presentable one.

    Without a stream it is what standard error is at that moment. Of several processes each record
    says which one's it is, `process`.
    """

    def __init__(
        self,
        *,
        level: int = logging.WARNING,
        stream: TextIO | None = None,
        form: Callable[[Record], str] = as_json,
        clock: Clock | None = None,
        process: int | None = None,
    ) -> None:
        self.level = level
        self._stream = stream
        self._form = form
        self._repeats = Repeats(clock or SystemClock())
        self._process = process

    def write(self, level: int, record: Record, error: BaseException | None) -> None:
        """An error of the system loses the record and ends nothing."""
        record["level"] = logging.getLevelName(level).lower()
        if self._process is not None:
            record["process"] = self._process
        if not self._repeats.admit(record):
            return
        record["timestamp"] = datetime.now(UTC).replace(tzinfo=None).isoformat() + "Z"
        if error is not None:
            record["exception"] = "".join(format_exception(error)).rstrip()
        line = self._form(presentable(record)) + "\n"
        stream = self._stream or sys.stderr
        with suppress(OSError):
            stream.write(line)
            stream.flush()
