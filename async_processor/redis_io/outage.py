"""When a broker was away: leases look dead after an outage although nobody died."""

from __future__ import annotations

import math

from async_processor.clock import Clock


class Outage:
    """Told of every exchange with a broker, by whoever talks to it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._away = False
        self._returned_at = -math.inf

    @property
    def away(self) -> bool:
        """Whether the last exchange failed."""
        return self._away

    @property
    def seconds_since_return(self) -> float:
        """Since the broker answered again; infinite when it was never away, 0 while it is."""
        return 0.0 if self._away else self._clock.monotonic() - self._returned_at

    def failed(self) -> None:
        """The broker could not be reached or could not serve."""
        self._away = True

    def answered(self) -> None:
        """The broker answered."""
        if self._away:
            self._away = False
            self._returned_at = self._clock.monotonic()
