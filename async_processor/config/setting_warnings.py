"""Settings that are legal and probably not meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from async_processor.config.gate_warnings import gate_warnings
from async_processor.config.settings import RedisTransport, Settings
from async_processor.dispatch.settings import RandomRobinPolicy
from async_processor.errors import Problem
from async_processor.fields import TlsSettings
from async_processor.inference.settings import InferenceSettings
from async_processor.wire.tiers import Tier

LONG_LEASE: Final = 600.0
"""Seconds. A lease is extended as long as the request runs, so it need not be as long as that."""

_DEFAULT_TIMEOUTS: Final = (
    Settings.model_fields["drain_timeout"].default,
    InferenceSettings().request_timeout,
)
"""Of a drain and a request. The drain is shorter, for a stop must not take five minutes: whoever
leaves both alone is not warned of a decision that is ours."""


def warnings(settings: Settings) -> list[Problem]:
    """What is legal and probably not meant."""
    return [
        *_short_drain(settings),
        *_capped_backoff(settings),
        *_late_reclaim(settings),
        *_doubtful_tls(settings),
        *_unknown_tiers(settings),
        *_idle_pools(settings),
        *_small_pools(settings),
        *gate_warnings(settings),
    ]


def _short_drain(settings: Settings) -> Iterator[Problem]:
    chosen = (settings.drain_timeout, settings.inference.request_timeout)
    if chosen[0] < chosen[1] and chosen != _DEFAULT_TIMEOUTS:
        message = (
            f"{settings.drain_timeout:g}s is shorter than inference.request_timeout "
            f"({settings.inference.request_timeout:g}s): a stop may cut calls off, which then run "
            "again elsewhere"
        )
        yield Problem(path="drain_timeout", message=message)


def _capped_backoff(settings: Settings) -> Iterator[Problem]:
    retry = settings.retry
    if retry.base_delay > retry.max_delay:
        message = (
            f"{retry.base_delay:g}s is longer than retry.max_delay ({retry.max_delay:g}s), which "
            "caps every wait: the waits do not grow"
        )
        yield Problem(path="retry.base_delay", message=message)


def _late_reclaim(settings: Settings) -> Iterator[Problem]:
    broker = settings.transport
    if broker.lease_ttl > LONG_LEASE:
        message = (
            f"{broker.lease_ttl:g}s: what a killed process held waits so long. A lease is "
            "extended while a request runs; 60s are enough for calls of any length"
        )
        yield Problem(path="transport.lease_ttl", message=message)
    if broker.reclaim_interval > broker.lease_ttl:
        message = (
            f"{broker.reclaim_interval:g}s is longer than transport.lease_ttl "
            f"({broker.lease_ttl:g}s): what a killed process held waits for both"
        )
        yield Problem(path="transport.reclaim_interval", message=message)


def _doubtful_tls(settings: Settings) -> Iterator[Problem]:
    broker = settings.transport
    if isinstance(broker, RedisTransport):
        encrypted = broker.url.startswith("rediss")
        if broker.tls != TlsSettings() and not encrypted:
            message = "has no effect: transport.url is not encrypted (rediss:// is)"
            yield Problem(path="transport.tls", message=message)
        if broker.tls.insecure and encrypted:
            yield _insecure("transport.tls.insecure")
    if settings.inference.tls.insecure:
        yield _insecure("inference.tls.insecure")


def _insecure(path: str) -> Problem:
    message = "true accepts any certificate: whoever sits between can read and change everything"
    return Problem(path=path, message=message)


def _unknown_tiers(settings: Settings) -> Iterator[Problem]:
    policy = settings.merge_policy
    if isinstance(policy, RandomRobinPolicy):
        return
    for index, queue in enumerate(settings.queues):
        tier = queue.labels.get(policy.tier_label, "")
        if tier and tier not in list(Tier):
            path = f"transport.queues[{index}].labels.{policy.tier_label}"
            yield Problem(path=path, message=f"{tier!r} is none of {', '.join(Tier)}: it is batch")


def _idle_pools(settings: Settings) -> Iterator[Problem]:
    used = Counter(queue.worker_pool_id for queue in settings.queues)
    for index, pool in enumerate(settings.worker_pools):
        if not used[pool.id]:
            message = f"no queue names the pool {pool.id!r}, its workers stay idle"
            yield Problem(path=f"worker_pools[{index}].id", message=message)


def _small_pools(settings: Settings) -> Iterator[Problem]:
    if settings.processes == "auto":
        return
    for index, pool in enumerate(settings.worker_pools):
        if pool.workers < settings.processes:
            message = (
                f"{pool.workers} workers cannot be divided among {settings.processes} processes: "
                "some have none of this pool"
            )
            yield Problem(path=f"worker_pools[{index}].workers", message=message)
