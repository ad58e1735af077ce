"""Which tenants a configuration names, for whom there is a series each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from async_processor.config.load import validated
from async_processor.config.settings import Settings
from async_processor.daemon.tenants import named_quotas, named_tenants
from async_processor.wire.tenants import canonical

OWN = "redis://r:6379/0"
SLOTS = {"type": "redis-quota", "mode": "concurrency", "limit": 2}
STARTS = {"type": "redis-quota", "limits": {"a": 5}}
FAIR = {"type": "weighted-fair", "weights": {"a": 3, "default": 1, "team-*": 2}}


def configuration(
    gates: Mapping[str, Any], pools: Mapping[str, Any] | None = None, policy: Any = None
) -> Settings:
    """A queue for each gate, in the pool whose name the queue's begins with."""
    queues = [
        {
            "queue_name": name,
            "igw_base_url": "http://gw",
            "gate": gate,
            "worker_pool_id": name.partition("-")[0],
        }
        for name, gate in gates.items()
    ]
    ids = {queue["worker_pool_id"] for queue in queues}
    return validated(
        {
            "transport": {"type": "redis-sortedset", "url": OWN, "queues": queues},
            "worker_pools": [
                {"id": name, "gate": (pools or {}).get(name, {"type": "constant"})}
                for name in sorted(ids)
            ],
            "merge_policy": policy or {"type": "random-robin"},
        },
        {},
    )


def names(*tenants: str) -> dict[str, str]:
    return {tenant: tenant for tenant in tenants}


def test_nobody_is_named_where_a_limit_is_for_all_or_for_a_pattern() -> None:
    limits = {"team-*": 3, "*": 1}
    settings = configuration({"p-1": SLOTS, "p-2": SLOTS | {"prefix": "x:", "limits": limits}})
    assert named_tenants(settings, "p") == {}
    assert named_quotas(settings, OWN) == []


def test_a_pools_tenants_are_those_of_its_queues_of_itself_and_of_the_weights() -> None:
    settings = configuration(
        {
            "p-1": {"type": "wait-on-refuse", "gate": SLOTS | {"limits": {"b": 1, "b*": 2}}},
            "p-2": {"type": "composite", "gates": [{"type": "constant"}, STARTS]},
            "q-1": SLOTS | {"limits": {"elsewhere": 1}},
        },
        {"p": STARTS | {"attribute": "team", "limits": {"c": 1}}},
        FAIR,
    )
    assert named_tenants(settings, "p") == {"userid": names("a", "b"), "team": names("c")}
    assert named_tenants(settings, "q") == {"userid": names("a", "elsewhere")}


def test_a_tenant_of_a_quota_may_be_called_like_the_default_of_weights() -> None:
    settings = configuration({"p-1": STARTS | {"limits": {"default": 1}}})
    assert named_tenants(settings, "p") == {"userid": names("default")}


def test_who_says_nothing_is_the_tenant_that_he_counts_under() -> None:
    under_a = configuration({"p-1": STARTS | {"missing_attribute": "a"}})
    assert named_tenants(under_a, "p") == {"userid": {"a": "a", "": "a"}}
    for word in ("allow", "refuse"):
        said = STARTS | {"missing_attribute": word, "limits": {word: 1}}
        assert named_tenants(configuration({"p-1": said}), "p") == {"userid": names(word)}


def test_a_long_name_is_the_one_that_it_counts_under() -> None:
    long = "x" * 10_000
    settings = configuration({"p-1": STARTS | {"limits": {long: 5}}}, policy=FAIR)
    (quota,) = named_quotas(settings, OWN)
    assert quota.limits == {canonical(long): 5}
    assert named_tenants(settings, "p") == {"userid": names("a", canonical(long))}


def test_gates_that_count_together_are_one_quota() -> None:
    settings = configuration(
        {
            "p-1": SLOTS | {"limits": {"a": 3, "b": 1}},
            "p-2": SLOTS | {"limits": {"a": 2, "c": 4}, "window": "10s"},
            "p-3": STARTS,
        }
    )
    slots, starts = named_quotas(settings, OWN)
    assert (slots.name, slots.limits) == ("quota:concurrency:userid", {"a": 3, "b": 1, "c": 4})
    assert (starts.name, starts.limits) == ("quota:rate-limit:userid:60s", {"a": 5})


def test_the_same_quota_on_another_redis_is_another() -> None:
    elsewhere = STARTS | {"url": "redis://me:secret@other:6379/1"}
    settings = configuration({"p-1": STARTS | {"url": OWN}, "p-2": STARTS, "p-3": elsewhere})
    assert [quota.name for quota in named_quotas(settings, OWN)] == [
        "quota:rate-limit:userid:60s",
        "quota:rate-limit:userid:60s at redis://***@other:6379/1",
    ]
