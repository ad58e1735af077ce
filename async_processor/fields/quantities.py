"""Quantities: durations become seconds, sizes become bytes, numbers may be written as texts."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.json_schema import WithJsonSchema

LONGEST_DURATION: Final = 1_000_000 * 3600.0
"""Seconds. More than a century is a mistake, and too much for some timers."""
SHORTEST_DURATION: Final = 0.001
SHORTEST_INTERVAL: Final = 0.1
"""Seconds between two looks at a server, which would have nothing else to do otherwise."""
LARGEST: Final = 10**9
"""Of numbers that count something; beyond it they are not exact everywhere."""
LARGEST_SIZE: Final = 512 * 2**20
"""Bytes; no value of Redis is longer."""

MOST_PROCESSES: Final = 256
"""Of one replica; no machine that this runs on has more cores."""

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
        return _in_reach(value)
    if isinstance(value, str):
        return _duration_from_text(value.strip())
    raise ValueError("must be a duration like 500ms, 5s, 2m or 1h, or a number of seconds")


def _duration_from_text(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return _in_reach(float(text))
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("must be a duration like 500ms, 5s, 2m or 1h, or a number of seconds")
    return _in_reach(sum(Decimal(number) * _DURATION_UNITS[unit] for number, unit in parts))


def _in_reach(seconds: float | Decimal) -> float:
    # NaN fails this comparison too.
    if not seconds >= 0:
        raise ValueError("must be a duration of 0 or more")
    if seconds > LONGEST_DURATION:
        raise ValueError(f"must be a duration of {LONGEST_DURATION / 3600:.0f}h or less")
    return float(seconds)


def _noticeable(seconds: float) -> float:
    if seconds < SHORTEST_DURATION:
        raise ValueError("must be 1ms or more")
    return seconds


def _bearable(seconds: float) -> float:
    if 0 < seconds < SHORTEST_INTERVAL:
        raise ValueError("must be 100ms or more, or a server would be asked all the time")
    return seconds


def _storable(size: int) -> int:
    if size > LARGEST_SIZE:
        raise ValueError("must be 512MiB or less, which is all that a value of Redis can hold")
    return size


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


def read_processes(value: object) -> int | Literal["auto"]:
    """A number of processes, or `auto`; raises ValueError for anything else."""
    text = str(value).strip() if isinstance(value, int | str) else ""
    if text == "auto":
        return "auto"
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_PROCESSES):
        raise ValueError(f"must be auto, or a whole number from 1 to {MOST_PROCESSES}")
    return int(text)


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
PositiveDuration = Annotated[
    float,
    BeforeValidator(read_duration),
    Field(gt=0),
    AfterValidator(_noticeable),
    _SCHEMA_DURATION,
]
"""Seconds, more than 0."""
Interval = Annotated[PositiveDuration, AfterValidator(_bearable)]
"""Seconds between two questions to a server."""
IntervalOrOff = Annotated[Duration, AfterValidator(_bearable)]
"""Seconds between two questions to a server; 0: none are asked."""
ByteSize = Annotated[
    int, BeforeValidator(read_size), Field(gt=0), AfterValidator(_storable), _SCHEMA_SIZE
]
"""Bytes, more than 0."""
Count = Annotated[int, Field(ge=1, le=LARGEST), BeforeValidator(_no_boolean)]
"""A whole number above 0."""
Whole = Annotated[int, Field(ge=0, le=LARGEST), BeforeValidator(_no_boolean)]
"""A whole number, 0 or more."""
Port = Annotated[int, Field(ge=0, le=65535), BeforeValidator(_no_boolean)]
"""A TCP port; 0 lets the system choose."""
Processes = Annotated[
    int | Literal["auto"],
    BeforeValidator(read_processes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MOST_PROCESSES},
                {"type": "string", "pattern": r"^(auto|\d+)$"},
            ]
        }
    ),
]
"""How many processes, or `auto`."""
Number = Annotated[float, BeforeValidator(_no_boolean)]
"""A finite number."""
NonNegative = Annotated[float, Field(ge=0, le=LARGEST), BeforeValidator(_no_boolean)]
"""A finite number, 0 or more."""
Positive = Annotated[float, Field(gt=0, le=LARGEST), BeforeValidator(_no_boolean)]
"""A finite number above 0."""
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(_no_boolean)]
"""A number in [0, 1]."""
