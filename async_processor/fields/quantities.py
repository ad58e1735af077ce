"""Quantities: durations become seconds, sizes become bytes, numbers may be written as texts."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field
from pydantic.json_schema import WithJsonSchema

_DURATION_UNITS: Final = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_NUMBER: Final = re.compile(r"\d+(?:\.\d*)?|\.\d+", re.ASCII)
_SIZE: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]i?)?B?", re.ASCII)
_SIZE_UNITS: Final = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def read_duration(value: object) -> float:
    """Seconds from `500ms`, `5s`, `2m`, `1h`, `1h30m` or a number of seconds.

    Raises ValueError for anything else, negative durations included.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _at_least_zero(float(value))
    if isinstance(value, str):
        return _duration_from_text(value.strip())
    raise ValueError("must be a duration like 500ms, 5s, 2m or 1h, or a number of seconds")


def _duration_from_text(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return float(text)
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("must be a duration like 500ms, 5s, 2m or 1h, or a number of seconds")
    return float(sum(Decimal(number) * _DURATION_UNITS[unit] for number, unit in parts))


def _at_least_zero(seconds: float) -> float:
    # NaN fails this comparison too, and infinity is refused by the field's own rule.
    if not 0 <= seconds < float("inf"):
        raise ValueError("must be a duration of 0 or more")
    return seconds


def read_size(value: object) -> int:
    """Bytes from `16MiB`, `32KiB`, `1GB` or a number of bytes; raises ValueError for others."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("must be a size of 0 or more")
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a size like 512KiB, 16MiB or 1GB, or a number of bytes")
    return int(Decimal(match[1]) * _SIZE_UNITS[match[2] or ""])


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - a TypeError would not be reported
    return value


_SCHEMA_DURATION: Final = WithJsonSchema(
    {
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": r"^(\d+(\.\d+)?(ns|us|ms|s|m|h)?)+$"},
        ],
        "description": "500ms, 5s, 2m, 1h, or a number of seconds",
    }
)
_SCHEMA_SIZE: Final = WithJsonSchema(
    {
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": r"^\d+(\.\d+)?\s*([KMGT]i?)?B?$"},
        ],
        "description": "512KiB, 16MiB, 1GB, or a number of bytes",
    }
)

Duration = Annotated[float, BeforeValidator(read_duration), _SCHEMA_DURATION]
"""Seconds, 0 or more."""
PositiveDuration = Annotated[float, BeforeValidator(read_duration), Field(gt=0), _SCHEMA_DURATION]
"""Seconds, more than 0."""
ByteSize = Annotated[int, BeforeValidator(read_size), Field(gt=0), _SCHEMA_SIZE]
"""Bytes, more than 0."""
Count = Annotated[int, Field(ge=1), BeforeValidator(_no_boolean)]
"""A whole number above 0."""
Whole = Annotated[int, Field(ge=0), BeforeValidator(_no_boolean)]
"""A whole number, 0 or more."""
Port = Annotated[int, Field(ge=0, le=65535), BeforeValidator(_no_boolean)]
"""A TCP port; 0 lets the system choose."""
Number = Annotated[float, BeforeValidator(_no_boolean)]
"""A finite number."""
NonNegative = Annotated[float, Field(ge=0), BeforeValidator(_no_boolean)]
"""A finite number, 0 or more."""
Positive = Annotated[float, Field(gt=0), BeforeValidator(_no_boolean)]
"""A finite number above 0."""
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(_no_boolean)]
"""A number in [0, 1]."""
