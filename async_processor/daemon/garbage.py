"""Keeps the garbage collector from what will never be garbage."""

from __future__ import annotations

import gc
from typing import Final

_YOUNG_OBJECTS: Final = 10_000
"""How many may come before the garbage collector looks through them; Python's own figure is 700."""


def put_off_the_garbage_collector() -> None:
    """Until it is spared: what is imported and built meanwhile stays, so looking is in vain.

    It would be a tenth of the time until the daemon is ready.
    """
    gc.disable()


def spare_the_garbage_collector() -> None:
    """What stands now stands to the end, and requests hardly ever leave cycles behind.

    Going through all modules again and again would cost a quarter of the daemon's CPU time. Young
    objects are looked through less often, for those of the requests in flight are all alive.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    gc.enable()
