"""How dead letters are shown: nothing in them can forge a line, or stop those that follow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from async_processor.producer.dead_letters import Letter
from async_processor.telemetry.masking import one_line
from async_processor.wire.envelope import InvalidMessage

TITLES: Final = "buried at (UTC)\tid\tqueue\treason"
"""Above the rows."""
_YEAR_9999: Final = 253_402_300_799.0
"""The last second that has a date here; foreign letters may have been buried at any time."""


def named(letter: Letter) -> str:
    """The letter in a sentence."""
    return one_line(letter.id) or "a message without an id"


def whole(letter: Letter) -> bytes:
    """One line of JSON, whatever lies there."""
    if letter.content is None:
        return msgspec.json.encode(facts(letter) | {"raw_base64": letter.raw})
    return letter.raw


def facts(letter: Letter) -> dict[str, Any]:
    content = letter.content
    if content is None:
        return {"id": "", "reason": "this is no dead letter", "bytes": len(letter.raw)}
    return {
        "id": letter.id,
        "queue_name": content.queue_name,
        "reason": content.reason,
        "buried_at": content.buried_at,
        "deliveries": content.deliveries,
        "bytes": len(content.body),
        "readable": not isinstance(letter.message, InvalidMessage),
        "holds_result": letter.holds_result,
    }


def row(letter: Letter) -> str:
    content = letter.content
    if content is None:
        return f"-\t-\t-\tthis is no dead letter ({len(letter.raw)} bytes)"
    buried_at = datetime.fromtimestamp(min(max(content.buried_at, 0.0), _YEAR_9999), UTC)
    reason = " ".join(content.reason.split())
    columns = (f"{buried_at:%Y-%m-%d %H:%M:%S}", letter.id or "-", content.queue_name, reason)
    return "\t".join(map(one_line, columns))
