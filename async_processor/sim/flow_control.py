"""What the router does with calls while the pool is saturated (saturation 1 and above)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import StrEnum

from async_processor.clock import Clock

SATURATED = 1.0
_TICK_SECONDS = 0.01


class Mode(StrEnum):
    """Pass every call on; answer 429 at once; or hold calls back, in order, until there is room."""

    OFF = "off"
    SHED = "shed"
    HOLD = "hold"


class DroppedReason(StrEnum):
    """The values of `x-llm-d-request-dropped-reason` that the simulated router sends."""

    SATURATED = "rejected-saturated"
    EXPIRED = "rejected-ttl-expired"
    NO_ENDPOINTS = "rejected-no-endpoints"


class FlowControl:
    """Lets calls through one at a time. It runs as long as `run` is awaited."""

    def __init__(
        self, mode: Mode, *, saturation: Callable[[], float], ttl: float, clock: Clock
    ) -> None:
        self._mode = mode
        self._saturation = saturation
        self._ttl = ttl
        self._clock = clock
        self._held: deque[asyncio.Future[None]] = deque()

    @property
    def queue_size(self) -> int:
        """How many calls are held back."""
        return len(self._held)

    async def admit(self) -> DroppedReason | None:
        """Return when the call may go on, or say why it is dropped."""
        if self._mode is Mode.OFF or not self._blocked():
            return None
        if self._mode is Mode.SHED:
            return DroppedReason.SATURATED
        return await self._hold()

    async def run(self) -> None:
        """Let held calls go, in order, whenever there is room."""
        while True:
            await self._clock.sleep(_TICK_SECONDS)
            while self._held and self._saturation() < SATURATED:
                turn = self._held.popleft()
                if not turn.done():
                    turn.set_result(None)
                await asyncio.sleep(0)

    def _blocked(self) -> bool:
        return bool(self._held) or self._saturation() >= SATURATED

    async def _hold(self) -> DroppedReason | None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(turn)
        try:
            async with asyncio.timeout(self._ttl):
                await turn
        except TimeoutError:
            return DroppedReason.EXPIRED
        finally:
            if turn in self._held:
                self._held.remove(turn)
        return None
