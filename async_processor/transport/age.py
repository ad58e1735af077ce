"""How old a waiting request is, by what its sender wrote into it."""

from __future__ import annotations

from typing import Final

from async_processor.wire import envelope
from async_processor.wire.envelope import Envelope

MOST_BYTES: Final = 64 * 1024
"""A larger message is not read for it."""


def age(body: bytes, now: float) -> float | None:
    """Seconds since the `created` of a message, at least 0; None where it tells none.

    `now` is the Unix time by the broker's clock.
    """
    message = envelope.examine(body) if len(body) <= MOST_BYTES else None
    if not isinstance(message, Envelope) or message.request.created is None:
        return None
    return max(0.0, now - message.request.created)
