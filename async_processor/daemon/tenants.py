"""The tenants that a configuration names: of these metrics tell one by one.

So their labels are as many as the configuration makes them, whoever sends requests. A pattern with
`*` is no name, and neither is the `default` of weights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from async_processor.admission.quota.books import keys_of
from async_processor.admission.quota.gate import ALLOW, REFUSE
from async_processor.admission.settings import GateSettings, RedisQuotaGate
from async_processor.config.gate_parts import with_inner
from async_processor.config.settings import Settings
from async_processor.dispatch.merge.weighted_fair import DEFAULT
from async_processor.dispatch.settings import MergeSettings, WeightedFairPolicy
from async_processor.fields import without_password
from async_processor.wire.tenants import canonical


class NamedQuota(msgspec.Struct, frozen=True, kw_only=True):
    """A count that gates share, and how much of it the tenants may use that they name.

    `settings` are those of one of the gates.
    """

    name: str
    settings: RedisQuotaGate
    limits: Mapping[str, int]


def named_quotas(settings: Settings, own_redis: str) -> Sequence[NamedQuota]:
    """All counts in which a tenant is named; `own_redis` is the URL of the transport's.

    Where gates that count together say different things of a tenant, the larger limit is shown.
    """
    quotas: dict[str, NamedQuota] = {}
    for gate in _quotas(_gates(settings)):
        limits = {canonical(name): gate.limits[name] for name in _names(gate.limits)}
        if limits:
            name = _name(gate, own_redis)
            quota = NamedQuota(name=name, settings=gate, limits=limits)
            quotas[name] = _together(quotas[name], quota) if name in quotas else quota
    return list(quotas.values())


def _name(quota: RedisQuotaGate, own_redis: str) -> str:
    """What tells a count from all others, for people to read."""
    name, url = keys_of(quota).name, quota.redis_url(own_redis)
    return name if url == own_redis else f"{name} at {without_password(url)}"


def _together(one: NamedQuota, other: NamedQuota) -> NamedQuota:
    shared = one.limits.keys() & other.limits.keys()
    larger = {tenant: max(one.limits[tenant], other.limits[tenant]) for tenant in shared}
    return msgspec.structs.replace(one, limits={**one.limits, **other.limits, **larger})


def named_tenants(settings: Settings, pool_id: str) -> Mapping[str, Mapping[str, str]]:
    """Those who are named on the way of a pool's requests, by metadata attribute: what a request
    says there, and the tenant that this is."""
    names = defaultdict[str, dict[str, str]](dict)
    for attribute, said in (
        *_in_weights(settings.merge_policy),
        *map(_in_limits, _quotas(_gates(settings, pool_id))),
    ):
        names[attribute] |= said
    return {attribute: said for attribute, said in names.items() if said}


_Said = tuple[str, dict[str, str]]


def _in_weights(policy: MergeSettings) -> Iterator[_Said]:
    if isinstance(policy, WeightedFairPolicy):
        names = (name for name in _names(policy.weights) if name != DEFAULT)
        yield policy.attribute, _canonical(names)


def _in_limits(quota: RedisQuotaGate) -> _Said:
    """Who says nothing may count under a tenant's name."""
    said = _canonical(_names(quota.limits))
    missing = canonical(quota.missing_attribute)
    if missing in said and missing not in (ALLOW, REFUSE):
        said[""] = missing
    return quota.attribute, said


def _names(tenants: Iterable[str]) -> Iterator[str]:
    return (tenant for tenant in tenants if "*" not in tenant)


def _canonical(names: Iterable[str]) -> dict[str, str]:
    """What a request that says these counts under."""
    return {tenant: tenant for tenant in map(canonical, names)}


def _gates(settings: Settings, pool_id: str | None = None) -> Iterator[GateSettings]:
    """Those of all pools and their queues, or of one pool and its."""
    yield from (pool.gate for pool in settings.worker_pools if pool_id in (None, pool.id))
    yield from (queue.gate for queue in settings.queues if pool_id in (None, queue.worker_pool_id))


def _quotas(gates: Iterable[GateSettings]) -> Iterator[RedisQuotaGate]:
    for gate in gates:
        for _, inner in with_inner("", gate):
            if isinstance(inner, RedisQuotaGate):
                yield inner
