"""The signals of a daemon: SIGTERM and SIGINT end it, SIGHUP has its configuration read again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def heeded(stop: Callable[[str], None], reload: Callable[[], None] | None) -> Iterator[None]:
    """Meanwhile call `stop` with the name of a signal that ends, and `reload` for SIGHUP.

    To be entered while the event loop runs; afterwards signals do what they did before.
    """
    loop = asyncio.get_running_loop()
    calls: dict[signal.Signals, Callable[[], None]] = {
        number: partial(stop, number.name) for number in SIGNALS
    }
    if reload is not None:
        calls[signal.SIGHUP] = reload
    before = {number: signal.getsignal(number) for number in calls}
    for number, call in calls.items():
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number, usual in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, usual)
