"""How many processes a replica is to have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from async_processor.config.crews import shared_pools
from async_processor.config.settings import Settings
from async_processor.fields.quantities import MOST_PROCESSES

_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


def number_of(settings: Settings) -> int:
    """The number that was configured; with `auto` one for each core that this process may use, as
    far as each has a worker of every pool whose gates replicas share."""
    if settings.processes != "auto":
        return settings.processes
    return min([usable_cores(), *(pool.workers for _, pool in shared_pools(settings))])


def usable_cores(quota: Path = _QUOTA) -> int:
    """The cores that the scheduler gives us, and no more than the container's CPU limit pays for;
    a part of a core is none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, _paid_for(quota), MOST_PROCESSES))


def _paid_for(quota: Path) -> int:
    """By cgroup v2: microseconds of CPU time in so many microseconds, or `max`."""
    try:
        time, period = quota.read_text().split()
        return MOST_PROCESSES if time == "max" else int(time) // int(period)
    except (OSError, ValueError):
        return MOST_PROCESSES
