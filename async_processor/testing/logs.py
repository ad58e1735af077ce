"""What is logged while a test looks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from async_processor.telemetry.logs import Logger
from async_processor.telemetry.presenting import Record


class Records:
    """A journal that keeps every record."""

    level = logging.DEBUG

    def __init__(self) -> None:
        self.kept: list[Record] = []

    def write(self, level: int, record: Record, _error: BaseException | None) -> None:
        self.kept.append({**record, "level": logging.getLevelName(level).lower()})


@contextmanager
def captured() -> Iterator[list[Record]]:
    """The records of what is inside, as they come."""
    before, records = Logger.journal, Records()
    Logger.journal = records
    try:
        yield records.kept
    finally:
        Logger.journal = before
