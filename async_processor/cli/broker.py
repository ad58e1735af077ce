"""Which broker and which queues a command means: options, or the configuration of the daemon."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from async_processor.cli.pubsub_target import PubSubTarget
from async_processor.errors import BrokerUnavailable, ConfigurationError, Problem

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from async_processor.config.settings import Settings
    from async_processor.fields import Confirm, TlsSettings
    from async_processor.producer import Producer
    from async_processor.producer.connection import Connection
    from async_processor.producer.patience import OnOutage
    from async_processor.producer.pubsub import PubSubProducer

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The daemon's configuration: broker and queues.")
]
UrlOption = Annotated[str, typer.Option("--url", help="The broker's URL; default: REDIS_URL.")]
QueueOption = Annotated[str, typer.Option("--queue", help="The request queue.")]
ResultQueueOption = Annotated[
    str, typer.Option("--result-queue", help="Where results without a mailbox go.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_NOT_HERE: Final = {
    "memory": "its transport is memory, which lives in the daemon",
    "gcp-pubsub": "its transport is gcp-pubsub, which this command cannot look into: use gcloud "
    "pubsub, e.g. gcloud pubsub subscriptions pull <dead-letter subscription>",
}

RETRY_FOR: Final = 3.0
"""Seconds: somebody waits for the command, so it does not wait long for a broker that is away."""
PATIENT_RETRY_FOR: Final = 300.0
"""Seconds, for commands that run for long."""
NOTICE_INTERVAL: Final = 30.0
"""Seconds between two notices of a patient command that its broker is away."""


class OutageNotice:
    """Says now and then that a patient command waits for its broker."""

    def __init__(self, interval: float = NOTICE_INTERVAL) -> None:
        self._interval = interval
        self._next = 0.0

    def __call__(self, error: BrokerUnavailable) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._interval
            typer.echo(f"async-processor: {error}; trying again", err=True)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command works.

    `result_queue` is what the options say, and goes into every message; `results_from` is where
    results lie then, as far as is known here. `overrides` are result queues that a queue's
    configuration puts above every message's. `daemon` is the URL of the daemon's health port,
    empty without a configuration.
    """

    url: str
    tls: TlsSettings
    confirm: Confirm
    queues: tuple[str, ...]
    result_queue: str = ""
    results_from: str = "result-list"
    retry_queue: str = "retry-sortedset"
    dead_letter_queue: str = "dead-letter-list"
    overrides: dict[str, str] = {}
    daemon: str = ""
    bearer_token: str = ""

    @property
    def queue(self) -> str:
        """The one queue; raises ConfigurationError where there are several."""
        if len(self.queues) > 1:
            raise _wrong("--queue", f"name one of {', '.join(self.queues)}")
        return self.queues[0]

    def producer(self, *, retry_for: float, on_outage: OnOutage | None = None) -> Producer:
        """A producer for the one queue."""
        from async_processor.producer import Producer

        return Producer(
            self.url,
            tls=self.tls,
            queue=self.queue,
            result_queue=self.result_queue,
            retry_for=retry_for,
            confirm=self.confirm,
            on_outage=on_outage,
        )

    def connection(self) -> Connection:
        """A connection to the broker, not open yet."""
        from async_processor.producer.connection import Connection

        return Connection(self.url, self.tls, RETRY_FOR)


AnyTarget = Target | PubSubTarget


def producer(
    where: AnyTarget, *, patient: bool = False
) -> AbstractAsyncContextManager[Producer | PubSubProducer]:
    """A producer for the one queue; a patient one lives through a restart of the broker."""
    if patient:
        return where.producer(retry_for=PATIENT_RETRY_FOR, on_outage=OutageNotice())
    return where.producer(retry_for=RETRY_FOR)


def any_target(config: Path | None, url: str, queue: str = "", result_queue: str = "") -> AnyTarget:
    """Like `target`, for commands that work on Pub/Sub too."""
    from async_processor.config.settings import PubSubTransport

    settings = _load(config) if config is not None else None
    if settings is None or not isinstance(settings.transport, PubSubTransport):
        return target(config, url, queue, result_queue)
    transport = settings.transport
    overrides = {one.queue_name: one.result_queue_name for one in settings.queues}
    return PubSubTarget(
        project_id=transport.project_id,
        queues=(queue,) if queue else tuple(overrides),
        topics={one.queue_name: one.topic_id for one in transport.topics},
        result_topic=result_queue or transport.result_topic_id,
        results_from=result_queue,
        overrides={name: override for name, override in overrides.items() if override},
        daemon=_health_port(settings),
        bearer_token=settings.server.bearer_token,
    )


def target(config: Path | None, url: str, queue: str = "", result_queue: str = "") -> Target:
    """What the options mean; what an option says goes before the configuration.

    Raises:
        ConfigurationError: the configuration is wrong, or its broker cannot be reached from here.
    """
    from async_processor.fields import Confirm, TlsSettings
    from async_processor.producer.client import DEFAULT_QUEUE, DEFAULT_RESULT_QUEUE, DEFAULT_URL

    if config is not None:
        return _configured(_load(config), url, queue, result_queue)
    return Target(
        url=url or os.environ.get("REDIS_URL") or DEFAULT_URL,
        tls=TlsSettings(),
        confirm=Confirm(),
        queues=(queue or DEFAULT_QUEUE,),
        result_queue=result_queue,
        results_from=result_queue or DEFAULT_RESULT_QUEUE,
    )


def _load(config: Path) -> Settings:
    from async_processor.config.load import load

    return load(config, os.environ)


def _configured(settings: Settings, url: str, queue: str, result_queue: str) -> Target:
    from async_processor.transport.settings import RedisSettings

    transport = settings.transport
    if not isinstance(transport, RedisSettings):
        raise _wrong("--config", _NOT_HERE[transport.type])
    overrides = {one.queue_name: one.result_queue_name for one in settings.queues}
    return Target(
        url=url or transport.url,
        tls=transport.tls,
        confirm=transport.confirm,
        queues=(queue,) if queue else tuple(overrides),
        result_queue=result_queue,
        results_from=result_queue or transport.result_queue_name,
        retry_queue=transport.retry_queue_name,
        dead_letter_queue=transport.dead_letter_queue_name,
        overrides={name: override for name, override in overrides.items() if override},
        daemon=_health_port(settings),
        bearer_token=settings.server.bearer_token,
    )


def _health_port(settings: Settings) -> str:
    """Where a daemon with this configuration listens, on this machine; 0 may be any port."""
    server = settings.server
    host = "localhost" if server.bind in ("", "0.0.0.0", "::") else server.bind  # noqa: S104
    bracketed = f"[{host}]" if ":" in host else host
    return f"http://{bracketed}:{server.health_port}" if server.health_port else ""


def _wrong(option: str, message: str) -> ConfigurationError:
    return ConfigurationError([Problem(path=option, message=message)])
