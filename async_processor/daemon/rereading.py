"""Reads a changed configuration and has it taken over; says what only a restart can change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from async_processor.clock import Clock
from async_processor.config.settings import Settings
from async_processor.errors import AsyncProcessorError
from async_processor.telemetry.logs import get_logger
from async_processor.telemetry.metrics import Metrics

ReadSettings = Callable[[], Settings]
"""Reads the configuration anew; raises ConfigurationError."""

TakeOver = Callable[[Settings], Awaitable[None]]

NEEDS_RESTART: Final = (
    "processes",
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


async def reread(
    read: ReadSettings, apply: TakeOver, before: Settings, metrics: Metrics, clock: Clock
) -> None:
    """Read anew and have it taken over; log and metrics say what came of it."""
    try:
        settings = await asyncio.to_thread(read)
        for path in NEEDS_RESTART:
            if _value(before, path) != _value(settings, path):
                _log.warning("restart_needed", path=path)
        await apply(settings)
    except AsyncProcessorError as error:
        for line in str(error).splitlines():
            _log.error("configuration_not_reloaded", key=line, error=line)
        metrics.config_reload_failed()
        return
    except Exception:  # noqa: BLE001 - a file that we did not foresee must not end the daemon
        _log.exception("configuration_not_reloaded")
        metrics.config_reload_failed()
        return
    _log.info("configuration_reloaded", queues=[q.queue_name for q in settings.queues])
    metrics.config_reloaded(clock.now())


def _value(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name, None)
    return value
