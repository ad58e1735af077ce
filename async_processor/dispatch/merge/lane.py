"""One lane: fair shares between groups of requests, deadline order within a group."""

from __future__ import annotations

from async_processor.dispatch.merge.base import Ready
from async_processor.dispatch.merge.shares import Shares
from async_processor.ranking import Ranking


class Lane:
    """The requests that wait in it, by group: a queue, or a tenant. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._groups: dict[str, Ranking[Ready]] = {}
        """Those of which any wait."""
        self._steps: dict[Ready, float] = {}
        """Of those that wait."""
        self._shares = Shares()

    def __len__(self) -> int:
        return len(self._steps)

    def size(self, group: str) -> int:
        """How many of a group wait."""
        return len(self._groups.get(group, ()))

    def add(self, group: str, ready: Ready, step: float, now: float) -> None:
        """Let a request wait; its turn moves the group's mark on by `step`."""
        ranking = self._groups.get(group)
        if ranking is None:
            ranking = self._groups[group] = Ranking()
            self._shares.join(group, now)
        ranking.add(ready, ready.request.deadline)
        self._steps[ready] = step

    def next(self, now: float) -> Ready | None:
        """Take out whose turn it is."""
        if not self._groups:
            return None
        group = min(self._groups, key=self._shares.mark)
        ready = self._groups[group].first()
        self.take(group, ready, now)
        return ready

    def take(self, group: str, ready: Ready, now: float) -> None:
        """Take out one that waits, as if it were its turn."""
        self._shares.serve(group, self._steps[ready])
        self.remove(group, ready, now)

    def remove(self, group: str, ready: Ready, now: float) -> bool:
        """Take one out of turn; False when it does not wait here."""
        if self._steps.pop(ready, None) is None:
            return False
        ranking = self._groups[group]
        ranking.discard(ready)
        if not ranking:
            del self._groups[group]
            self._shares.leave(group, now)
        return True

    def oldest(self) -> Ready | None:
        """The one that has waited longest."""
        return min(self._steps, key=lambda ready: ready.since, default=None)
