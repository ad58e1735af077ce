"""Tries a call again while the broker is away."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from async_processor.errors import BrokerUnavailable

_T = TypeVar("_T")
OnOutage = Callable[[BrokerUnavailable], None]

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 2.0


class Patience:
    """Repeats calls that fail with BrokerUnavailable, for up to `retry_for` seconds each.

    What is called must be safe to repeat: the answer may have been lost after the work was done.
    `on_outage` hears of every failure after which a call is tried again.
    """

    def __init__(self, retry_for: float, on_outage: OnOutage | None = None) -> None:
        self._retry_for = retry_for
        self._on_outage = on_outage

    async def __call__(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Raises BrokerUnavailable when the broker has been away for too long."""
        give_up_at = time.monotonic() + self._retry_for
        wait = _FIRST_WAIT_S
        while True:
            try:
                return await attempt()
            except BrokerUnavailable as error:
                if time.monotonic() + wait > give_up_at:
                    raise
                if self._on_outage is not None:
                    self._on_outage(error)
            await asyncio.sleep(random.uniform(wait / 2, wait))
            wait = min(_LONGEST_WAIT_S, wait * 2)
