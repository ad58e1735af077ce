"""The settings as they may be shown: in the start-up log line, in errors, in `status`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from async_processor.config.settings import Settings
from async_processor.fields import Section


def effective(settings: Settings) -> dict[str, Any]:
    """Every setting as plain data, secrets masked; durations in seconds, sizes in bytes."""
    return _section(settings)


def _section(section: Section) -> dict[str, Any]:
    return {key: _plain(section.shown(name)) for key, name in type(section).keys().items()}


def _plain(value: Any) -> Any:
    match value:
        case Section():
            return _section(value)
        case Enum():
            return value.value
        case tuple() | list():
            return [_plain(item) for item in value]
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case _:
            return value
