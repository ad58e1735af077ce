"""Takes a changed configuration over while the daemon runs.

An invalid file changes nothing: the old configuration stays in force, and log and metric say so.
What only a restart can change is named, and everything else is taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from async_processor.config.settings import Settings
from async_processor.daemon.shared import Shared
from async_processor.daemon.topology import Topology
from async_processor.daemon.workshop import Workshop
from async_processor.errors import AsyncProcessorError
from async_processor.telemetry.logs import get_logger

ReadSettings = Callable[[], Settings]
"""Reads the configuration anew; raises ConfigurationError."""

NEEDS_RESTART: Final = (
    "server",
    "inference.tls",
    "limits.answer_bytes",
    "limits.claim_bytes",
    *(
        f"transport.{key}"
        for key in (
            "type",
            "url",
            "tls",
            "project_id",
            "dead_letter_topic_id",
            "confirm",
            "retry_queue_name",
            "dead_letter_queue_name",
            "dead_letter_limit",
            "lease_ttl",
            "reclaim_interval",
            "backlog_poll_interval",
        )
    ),
)

_log = get_logger(__name__)


class Reloader:
    """Reads the configuration again and applies it."""

    def __init__(self, read: ReadSettings, topology: Topology, shared: Shared) -> None:
        self._read = read
        self._topology = topology
        self._shared = shared

    async def reload(self) -> None:
        """Reload once; never raises for what stands in the configuration."""
        try:
            settings = await asyncio.to_thread(self._read)
            await self._apply(settings)
        except AsyncProcessorError as error:
            for line in str(error).splitlines():
                _log.error("configuration_not_reloaded", key=line, error=line)
            self._shared.metrics.config_reload_failed()
            return
        except Exception:  # noqa: BLE001 - a file that we did not foresee must not end the daemon
            _log.exception("configuration_not_reloaded")
            self._shared.metrics.config_reload_failed()
            return
        _log.info("configuration_reloaded", queues=[q.queue_name for q in settings.queues])
        self._shared.metrics.config_reloaded(self._shared.clock.now())

    async def _apply(self, settings: Settings) -> None:
        before = self._topology.settings
        for path in NEEDS_RESTART:
            if _value(before, path) != _value(settings, path):
                _log.warning("restart_needed", path=path)
        gates = self._shared.gates
        if gates.roll and gates.roll.wanted and _meeting_place(before) != _meeting_place(settings):
            _log.warning("restart_needed", path="transport.queues.0.queue_name")
        gates.prometheus = settings.prometheus
        try:
            await self._topology.apply(Workshop(settings, self._shared))
        except BaseException:
            gates.prometheus = before.prometheus
            raise


def _meeting_place(settings: Settings) -> str:
    """By its first queue's name a replica finds the others that share its gates."""
    return settings.queues[0].queue_name


def _value(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name, None)
    return value
