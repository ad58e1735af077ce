"""Takes a changed configuration over while the daemon runs.

An invalid file changes nothing: the old configuration stays in force, and log and metric say so.
What only a restart can change is named, and everything else is taken over.
"""

from __future__ import annotations

from functools import partial

from async_processor.config.crews import unmanned
from async_processor.config.settings import Settings
from async_processor.daemon.rereading import ReadSettings, reread
from async_processor.daemon.shared import Shared
from async_processor.daemon.topology import Topology
from async_processor.daemon.workshop import Workshop
from async_processor.errors import ConfigurationError
from async_processor.telemetry.logs import get_logger

_log = get_logger(__name__)


class Reloader:
    """Reads the configuration again and applies it."""

    def __init__(self, read: ReadSettings, topology: Topology, shared: Shared) -> None:
        self._read = read
        self._topology = topology
        self._shared = shared

    async def reload(self) -> None:
        """Reload once; never raises for what stands in the configuration."""
        topology, shared = self._topology, self._shared
        apply = partial(take_over, topology, shared)
        await reread(self._read, apply, topology.settings, shared.metrics, shared.clock)


async def take_over(topology: Topology, shared: Shared, settings: Settings) -> None:
    """Go by these settings; raises ConfigurationError for what this replica's processes are too
    many for, and as `Topology.apply`; then nothing changes."""
    before, gates = topology.settings, shared.gates
    if problems := list(unmanned(settings, gates.crew.processes)):
        raise ConfigurationError(problems)
    if gates.roll and gates.roll.wanted and _meeting_place(before) != _meeting_place(settings):
        _log.warning("restart_needed", path="transport.queues.0.queue_name")
    gates.prometheus = settings.prometheus
    try:
        await topology.apply(Workshop(settings, shared))
    except BaseException:
        gates.prometheus = before.prometheus
        raise


def _meeting_place(settings: Settings) -> str:
    """By its first queue's name a replica finds the others that share its gates."""
    return settings.queues[0].queue_name
