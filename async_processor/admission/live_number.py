"""A number that may change while others go by it: the workers of a pool, a limit."""

from __future__ import annotations

from collections.abc import Callable

from async_processor.listeners import Leave, Listeners


class LiveNumber:
    """Written by its one owner alone; everybody else reads it anew whenever it matters."""

    def __init__(self, value: int) -> None:
        self._value = value
        self._changed = Listeners[[]]()

    @property
    def value(self) -> int:
        return self._value

    def set(self, value: int) -> None:
        """From now on it is this; those who listen hear of it if it was another before."""
        if value != self._value:
            self._value = value
            self._changed.tell()

    def subscribe(self, changed: Callable[[], None]) -> Leave:
        """Call `changed` whenever the number has changed, until what is returned is called."""
        return self._changed.add(changed)
