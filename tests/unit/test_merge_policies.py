"""Whose turn it is: strict lanes, fair shares, age, and no request forgotten in a lane."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_processor.admission.base import Classification
from async_processor.dispatch.merge import cost
from async_processor.dispatch.merge.base import MergePolicy, Ready
from async_processor.dispatch.merge.lane import Lane
from async_processor.dispatch.merge.tier_priority import LANES, TierPriority, lane_of
from async_processor.dispatch.merge.weighted_fair import WeightedFair
from async_processor.dispatch.settings import QueueSettings
from async_processor.wire.request import Request
from async_processor.wire.tiers import Tier, read

RESERVED, OVERFLOW = Classification.RESERVED, Classification.OVERFLOW
TIERS = [tier.value for tier in Tier]
numbers = itertools.count()


def queue(tier: str = "batch", name: str = "") -> QueueSettings:
    return QueueSettings(
        queue_name=name or f"queue-{tier}", igw_base_url="http://x", labels={"tier": tier}
    )


def ready(
    tier: str = "batch",
    classification: Classification = Classification.NONE,
    *,
    tenant: str = "t",
    name: str = "",
    deadline: float = 100.0,
    since: float = 0.0,
    payload: bytes = b"{}",
    lot: str = "",
) -> Ready:
    request = Request(
        id=f"r-{next(numbers)}", deadline=deadline, payload=payload, metadata={"userid": tenant}
    )
    return Ready(
        queue=queue(tier, name),
        request=request,
        since=since,
        classification=classification,
        lot=lot,
    )


def tier_priority(workers: int = 600) -> TierPriority:
    return TierPriority(workers=workers, tier_label="tier")


def weighted_fair(workers: int = 600, **changes: Any) -> WeightedFair:
    arguments: dict[str, Any] = {
        "tier_label": "tier",
        "attribute": "userid",
        "weights": {},
        "cost": cost.one,
        "max_age": None,
    }
    return WeightedFair(workers=workers, **{**arguments, **changes})


def drained(policy: MergePolicy, now: float = 0.0) -> list[Ready]:
    taken = []
    while (each := policy.next(now)) is not None:
        taken.append(each)
    return taken


def test_the_lanes_are_named_from_the_highest_down() -> None:
    assert (
        *("reserved-interactive", "reserved-async", "reserved-batch"),
        *("overflow-interactive", "overflow-async", "overflow-batch"),
    ) == LANES
    assert [lane_of(tier, RESERVED) for tier in Tier] == [0, 1, 2]
    assert [lane_of(tier, Classification.NONE) for tier in Tier] == [3, 4, 5]


@pytest.mark.parametrize("text", ["", "gold", "BATCH", "Interactive"])
def test_an_unknown_tier_is_batch(text: str) -> None:
    assert read(text) is Tier.BATCH


@given(
    st.lists(
        st.tuples(
            st.sampled_from(TIERS),
            st.sampled_from(list(Classification)),
            st.integers(0, 50),
        ),
        max_size=60,
    )
)
def test_lanes_are_strict_and_deadlines_rule_within_a_queue(
    given_requests: list[tuple[str, Classification, int]],
) -> None:
    policy = tier_priority()
    added = [
        ready(tier, classification, deadline=float(deadline))
        for tier, classification, deadline in given_requests
    ]
    for each in added:
        assert policy.add(each) is None
    taken = drained(policy)
    assert {id(each) for each in taken} == {id(each) for each in added}
    keys = [(policy.lane(each.queue, each.classification), each.request.deadline) for each in taken]
    assert keys == sorted(keys)


def test_queues_take_turns_inside_a_lane() -> None:
    policy = tier_priority()
    for name in ("a", "a", "a", "b", "b"):
        policy.add(ready("batch", name=name))
    assert [each.queue.queue_name for each in drained(policy)] == ["a", "b", "a", "b", "a"]


def test_a_full_lane_sends_the_next_to_its_lot_and_says_when_there_is_room() -> None:
    policy, recalled = tier_priority(workers=6), list[str]()
    policy.on_room(lambda: recalled.append("room"))
    assert policy.add(ready("batch")) is None
    assert policy.add(ready("batch", lot="tenant-a")) == "tenant-a"
    assert policy.add(ready("batch")) == "lane overflow-batch"
    assert policy.add(ready("batch", RESERVED)) is None
    assert policy.lot_room(queue("batch"), "lane overflow-batch", 0, {}) == 0
    assert [policy.lane(each.queue, each.classification) for each in drained(policy)] == [2, 5]
    assert policy.lot_room(queue("batch"), "lane overflow-batch", 0, {}) == 1
    assert recalled


def test_what_a_quota_covers_comes_back_only_into_the_reserved_lane() -> None:
    """Otherwise it would be called back, find its lane full, and go back again, for ever."""
    policy = tier_priority(workers=12)
    assert policy.lot_room(queue(), "tenant-a", 100, {}) == 2
    policy.add(ready("batch", RESERVED))
    policy.add(ready("batch", RESERVED))
    assert policy.lot_room(queue(), "tenant-a", 100, {}) == 0
    assert policy.lot_room(queue(), "tenant-a", 0, {}) == 2


def test_what_waits_for_its_lane_comes_back_when_that_lane_has_room() -> None:
    policy = tier_priority(workers=6)
    policy.add(ready("batch", RESERVED))
    lot = policy.add(ready("batch", RESERVED))
    assert lot == "lane reserved-batch"
    assert policy.lot_room(queue("batch"), lot, 0, {}) == 0
    drained(policy)
    assert policy.lot_room(queue("batch"), lot, 0, {}) == 1


@pytest.mark.parametrize("make", [tier_priority, weighted_fair])
def test_what_is_coming_already_takes_its_places(make: Callable[..., MergePolicy]) -> None:
    policy = make(workers=36)
    room = policy.lot_room(queue(), "fair:a", 0, {})
    assert room is not None
    assert room > 4
    assert policy.lot_room(queue(), "fair:a", 0, {"fair:a": 2, "fair:b": 1}) in (
        room - 2,
        room - 3,
    )


def test_room_is_what_the_lanes_of_the_tier_have() -> None:
    policy = tier_priority(workers=12)
    assert policy.room(queue("async")) == 4
    policy.add(ready("async"))
    assert policy.room(queue("async")) == 3
    assert policy.room(queue("batch")) == 4


def test_higher_tiers_claim_first_and_queues_of_a_tier_take_turns() -> None:
    class Bid:
        def __init__(self, tier: str, name: str) -> None:
            self.queue = queue(tier, name)

    policy = tier_priority()
    bids = [Bid("batch", "b1"), Bid("batch", "b2"), Bid("interactive", "i1")]
    assert bids[policy.choose(bids)].queue.queue_name == "i1"
    turns = [bids[policy.choose(bids[:2])].queue.queue_name for _ in range(4)]
    assert sorted(turns[:2]) == sorted(turns[2:]) == ["b1", "b2"]


@settings(max_examples=30)
@given(
    weights=st.lists(st.integers(1, 8), min_size=2, max_size=5),
    costs=st.lists(st.integers(1, 20), min_size=2, max_size=5),
)
def test_long_run_shares_are_those_of_the_weights(weights: list[int], costs: list[int]) -> None:
    """In tokens: whoever asks for more at once gets fewer requests, and the same share."""
    named = {f"t{n}": float(weight) for n, weight in enumerate(weights)}
    policy = weighted_fair(weights=named, cost=cost.tokens)

    def request(tenant: str) -> Ready:
        size = 100 * costs[int(tenant[1:]) % len(costs)]
        return ready(tenant=tenant, payload=b'{"max_tokens":%d}' % size)

    for tenant in named:
        policy.add(request(tenant))
        policy.add(request(tenant))
    served: Counter[str] = Counter()
    for _ in range(1500):
        each = policy.next(0.0)
        assert each is not None
        tenant = each.request.metadata["userid"]
        served[tenant] += round(cost.tokens(each.request))
        policy.add(request(tenant))
    for tenant, weight in named.items():
        expected = served.total() * weight / sum(named.values())
        # A share can be off by the request that is just being paid for.
        largest = 100 * max(costs) + 10
        assert abs(served[tenant] - expected) <= max(0.05 * expected, 2 * largest)


def test_a_tenant_that_comes_late_gets_its_share_from_then_on_and_no_more() -> None:
    policy = weighted_fair()
    for _ in range(20):
        policy.add(ready(tenant="early"))
    assert len([policy.next(0.0) for _ in range(10)]) == 10
    for _ in range(5):
        policy.add(ready(tenant="late"))
    turns = [each.request.metadata["userid"] for each in drained(policy)][:10]
    assert Counter(turns) == {"early": 5, "late": 5}


def test_tiers_are_strict_between_tenants() -> None:
    policy = weighted_fair(weights={"a": 1000.0})
    policy.add(ready("batch", tenant="a"))
    policy.add(ready("interactive", tenant="b"))
    assert [each.request.metadata["userid"] for each in drained(policy)] == ["b", "a"]


def test_a_request_over_the_age_goes_first() -> None:
    policy = weighted_fair(max_age=60.0)
    policy.add(ready("batch", tenant="old", since=0.0))
    policy.add(ready("interactive", tenant="new", since=50.0))
    first = policy.next(61.0)
    assert first is not None
    assert first.request.metadata["userid"] == "old"


def test_a_tenants_full_lane_leaves_places_to_the_others() -> None:
    policy = weighted_fair(workers=6)
    assert policy.room(queue()) == 2
    assert policy.add(ready(tenant="greedy")) is None
    assert policy.add(ready(tenant="greedy")) == "fair:greedy"
    assert policy.add(ready(tenant="modest")) is None
    assert policy.lot_room(queue(), "fair:greedy", 0, {}) == 0
    assert policy.lot_room(queue(), "somebody else's", 0, {}) is None
    drained(policy)
    assert policy.lot_room(queue(), "fair:greedy", 0, {}) == 1


@pytest.mark.parametrize("make", [tier_priority, weighted_fair])
@given(steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(TIERS)), max_size=60))
def test_whatever_joins_a_lane_leaves_it_exactly_once(
    make: Any, steps: list[tuple[int, str]]
) -> None:
    policy = make()
    waiting: list[Ready] = []
    for step, tier in steps:
        if step == 0:
            waiting.append(ready(tier, tenant=tier))
            assert policy.add(waiting[-1]) is None
        elif step == 1 and waiting:
            policy.remove(waiting.pop(0))
        else:
            taken = policy.next(0.0)
            assert (taken is None) == (not waiting)
            if taken is not None:
                waiting = [each for each in waiting if each is not taken]
                policy.remove(taken)  # harmless
    left = drained(policy)
    assert {id(each) for each in left} == {id(each) for each in waiting}
    assert len(left) == len(waiting)


def test_an_empty_lane_has_nobody_next() -> None:
    lane = Lane(2)
    only = ready()
    lane.add(only)
    assert lane.oldest() is only
    assert lane.remove(only)
    assert not lane.remove(only)
    assert lane.next() is None
    assert lane.room == 2


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"max_tokens":100}', 100 + 18 / 4),
        (b'{"max_tokens":100,"n":2}', 200 + 24 / 4),
        (b'{"max_completion_tokens":7,"max_tokens":100}', 7 + 44 / 4),
        (b"{}", 256 + 2 / 4),
        (b'{"max_tokens":"many"}', 256 + 21 / 4),
        (b'{"max_tokens":-5}', 1.0 * 17 / 4),
    ],
)
def test_tokens_are_those_asked_for_and_the_prompts_size(payload: bytes, expected: float) -> None:
    assert cost.tokens(Request(id="r", deadline=1, payload=payload)) == pytest.approx(expected)
