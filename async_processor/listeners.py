"""Whoever wants to be told of something, until it does not want to any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, ParamSpec

_P = ParamSpec("_P")

Leave = Callable[[], None]
"""Ends a subscription; a second call does nothing."""


class Listeners(Generic[_P]):
    """Those who are told; each is its own, also when two of them call the same thing."""

    def __init__(self) -> None:
        self._calls: dict[object, Callable[_P, None]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: Callable[_P, None]) -> Leave:
        """Tell one more from now on."""
        key = object()
        self._calls[key] = call
        return partial(self._leave, key)

    def tell(self, *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Call everybody; who leaves meanwhile is not called any more."""
        for key, call in tuple(self._calls.items()):
            if key in self._calls:
                call(*args, **kwargs)

    def _leave(self, key: object) -> None:
        self._calls.pop(key, None)


def nobody_tells() -> None:
    """Ends the subscription to what never happens."""


class Subscriptions:
    """What one part listens to together. Joining or leaving twice does nothing the second time."""

    def __init__(self, *joins: Callable[[], Leave]) -> None:
        self._joins = joins
        self._leaves: list[Leave] = []

    def join(self) -> None:
        """Listen from now on."""
        if not self._leaves:
            self._leaves = [join() for join in self._joins]

    def leave(self) -> None:
        """Listen no more."""
        leaves, self._leaves = self._leaves, []
        for leave in leaves:
            leave()


def all_of(leaves: Sequence[Leave]) -> Leave:
    """Ends several subscriptions as one."""

    def leave() -> None:
        for each in leaves:
            each()

    return leave
