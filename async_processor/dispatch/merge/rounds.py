"""Queues claim in turns, and one that cannot take its turn for a moment makes up for it."""

from __future__ import annotations

from collections.abc import Mapping

from async_processor.dispatch.merge.shares import Shares


class Rounds:
    """Of all queues of a pool."""

    def __init__(self) -> None:
        self._shares = Shares()

    def choose(self, steps: Mapping[str, float], now: float) -> str:
        """Whose turn it is of these queues, each with what a turn of it costs, at `now` (monotonic
        seconds)."""
        for name in steps:
            self._shares.join(name, now)
        chosen = min(steps, key=self._shares.mark)
        self._shares.serve(chosen, steps[chosen])
        for name in steps:
            self._shares.leave(name, now)
        return chosen
