"""Whose turn it is: strict lanes, fair shares, age, and no request forgotten in a lane."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
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
from async_processor.dispatch.merge.weighted_fair import SAMPLE, WeightedFair
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


def full(policy: MergePolicy, request: Callable[[], Ready]) -> int:
    """Add requests until one finds its lane full; returns how many stand in it."""
    for count in itertools.count():
        if policy.add(request(), 0.0) is not None:
            return count
    raise AssertionError


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
        assert policy.add(each, 0.0) is None
    taken = drained(policy)
    assert {id(each) for each in taken} == {id(each) for each in added}
    keys = [(policy.lane(each.queue, each.classification), each.request.deadline) for each in taken]
    assert keys == sorted(keys)


def test_queues_take_turns_inside_a_lane() -> None:
    policy = tier_priority()
    for name in ("a", "a", "a", "b", "b"):
        policy.add(ready("batch", name=name), 0.0)
    assert [each.queue.queue_name for each in drained(policy)] == ["a", "b", "a", "b", "a"]


def test_a_full_lane_sends_the_next_to_its_lot_and_says_when_there_is_room() -> None:
    policy, recalled = tier_priority(workers=6), list[str]()
    policy.on_room(lambda: recalled.append("room"))
    assert full(policy, lambda: ready("batch")) == 6
    assert policy.add(ready("batch", lot="tenant-a"), 0.0) == "tenant-a"
    assert policy.add(ready("batch"), 0.0) == "lane overflow-batch"
    assert policy.add(ready("batch", RESERVED), 0.0) is None
    assert policy.lot_room(queue("batch"), "lane overflow-batch", 0, {}) == 0
    assert [policy.lane(each.queue, each.classification) for each in drained(policy)] == [
        2,
        *6 * [5],
    ]
    assert policy.lot_room(queue("batch"), "lane overflow-batch", 0, {}) == 6
    assert recalled


def test_what_a_quota_covers_comes_back_only_into_the_reserved_lane() -> None:
    """Otherwise it would be called back, find its lane full, and go back again, for ever."""
    policy = tier_priority(workers=12)
    assert policy.lot_room(queue(), "tenant-a", 100, {}) == 12
    assert full(policy, lambda: ready("batch", RESERVED)) == 12
    assert policy.lot_room(queue(), "tenant-a", 100, {}) == 0
    assert policy.lot_room(queue(), "tenant-a", 0, {}) == 1


def test_what_waits_for_its_lane_comes_back_when_that_lane_has_room() -> None:
    policy = tier_priority(workers=6)
    full(policy, lambda: ready("batch", RESERVED))
    lot = policy.add(ready("batch", RESERVED), 0.0)
    assert lot == "lane reserved-batch"
    assert policy.lot_room(queue("batch"), lot, 0, {}) == 0
    drained(policy)
    assert policy.lot_room(queue("batch"), lot, 0, {}) == 6


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


def test_no_lane_takes_the_places_that_the_others_keep() -> None:
    policy = tier_priority(workers=12)
    assert full(policy, lambda: ready("batch")) == 12
    for tier in ("interactive", "async"):
        assert policy.room(queue(tier), 0.0) == 1
        assert policy.add(ready(tier), 0.0) is None
    assert policy.room(queue("batch"), 0.0) == 0


def test_what_is_being_claimed_takes_places_already() -> None:
    policy = tier_priority(workers=12)
    assert policy.room(queue(name="a"), 0.0) == 12
    policy.expect(queue(name="b"), 9)
    assert policy.room(queue(name="a"), 0.0) == 3
    policy.expect(queue(name="b"), -9)
    assert policy.room(queue(name="a"), 0.0) == 12


def test_a_queue_with_a_quota_claims_what_finds_a_place_whatever_it_turns_out_to_be() -> None:
    policy = tier_priority(workers=12)
    policy.add(ready("batch", OVERFLOW), 0.0)
    reserved_keeps_one_and_overflow_has_one = policy.room(queue(), 0.0)
    assert reserved_keeps_one_and_overflow_has_one == 11
    policy.expect(queue(), 5)
    assert policy.room(queue(), 0.0) == 2  # five may be reserved, and five overflow


def test_a_full_overflow_lane_is_looked_past_for_what_is_covered() -> None:
    policy = tier_priority(workers=12)
    full(policy, lambda: ready("batch", OVERFLOW))
    assert policy.room(queue(), 0.0) == 0
    assert policy.room(queue(), 1.0) == 1  # as many as the reserved lane has places
    full(policy, lambda: ready("batch", RESERVED))
    assert policy.room(queue(), 2.0) == 0


def test_a_full_lane_of_a_queue_without_a_quota_is_not_looked_past() -> None:
    policy = tier_priority(workers=12)
    full(policy, lambda: ready("batch"))
    assert [policy.room(queue(), float(now)) for now in range(5)] == [0, 0, 0, 0, 0]


def test_higher_tiers_claim_first_and_queues_of_a_tier_take_turns() -> None:
    policy = tier_priority()
    queues = [queue("batch", "b1"), queue("batch", "b2"), queue("interactive", "i1")]
    assert queues[policy.choose(queues, 0.0)].queue_name == "i1"
    turns = [queues[policy.choose(queues[:2], 0.0)].queue_name for _ in range(4)]
    assert sorted(turns[:2]) == sorted(turns[2:]) == ["b1", "b2"]


@pytest.mark.parametrize("make", [tier_priority, weighted_fair])
def test_a_queue_that_cannot_bid_for_a_moment_makes_up_for_it(
    make: Callable[..., MergePolicy],
) -> None:
    policy, queues = make(), [queue(name="a"), queue(name="b")]
    policy.choose(queues, 0.0)
    policy.choose(queues, 0.0)
    for _ in range(3):
        policy.choose(queues[:1], 0.1)  # b's last claim is still under way
    chosen = [queues[policy.choose(queues, 0.2)].queue_name for _ in range(4)]
    assert chosen == ["b", "b", "b", "a"]


@settings(max_examples=30)
@given(
    weights=st.lists(st.integers(1, 8), min_size=2, max_size=5),
    costs=st.lists(st.integers(1, 20), min_size=5, max_size=5),
    absences=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=400),
)
def test_long_run_shares_are_those_of_the_weights(
    weights: list[int], costs: list[int], absences: list[tuple[int, int]]
) -> None:
    """In tokens: whoever asks for more at once gets fewer requests, and the same share. Nor does it
    matter that a tenant's lane is empty for some turns because its next is still being claimed."""
    named = {f"t{n}": float(weight) for n, weight in enumerate(weights)}
    policy = weighted_fair(weights=named, cost=cost.tokens)
    comes: dict[int, list[str]] = defaultdict(list, {0: [*named, *named]})
    late = {5 * turn: absence for turn, absence in enumerate(absences)}
    served: Counter[str] = Counter()
    for turn in range(2500):
        for tenant in comes.pop(turn, ()):
            size = 100 * costs[int(tenant[1:])]
            policy.add(ready(tenant=tenant, payload=b'{"max_tokens":%d}' % size), turn / 1000)
        each = policy.next(turn / 1000)
        if each is None:
            continue
        tenant = each.request.metadata["userid"]
        served[tenant] += round(cost.tokens(each.request))
        number, turns = late.get(turn, (-1, 0))
        comes[turn + 1 + (turns if tenant == f"t{number}" else 0)].append(tenant)
    for tenant, weight in named.items():
        expected = served.total() * weight / sum(named.values())
        # A share can be off by the request that is just being paid for.
        largest = 100 * max(costs) + 10
        assert abs(served[tenant] - expected) <= max(0.05 * expected, 2 * largest)


def test_a_tenant_that_comes_late_gets_its_share_from_then_on_and_no_more() -> None:
    policy = weighted_fair()
    for _ in range(20):
        policy.add(ready(tenant="early"), 0.0)
    assert len([policy.next(0.0) for _ in range(10)]) == 10
    for _ in range(5):
        policy.add(ready(tenant="late"), 0.0)
    turns = [each.request.metadata["userid"] for each in drained(policy)][:10]
    assert Counter(turns) == {"early": 5, "late": 5}


def test_tiers_are_strict_between_tenants() -> None:
    policy = weighted_fair(weights={"a": 1000.0})
    policy.add(ready("batch", tenant="a"), 0.0)
    policy.add(ready("interactive", tenant="b"), 0.0)
    assert [each.request.metadata["userid"] for each in drained(policy)] == ["b", "a"]


def test_a_request_over_the_age_goes_first() -> None:
    policy = weighted_fair(max_age=60.0)
    policy.add(ready("batch", tenant="old", since=0.0), 0.0)
    policy.add(ready("interactive", tenant="new", since=50.0), 0.0)
    first = policy.next(61.0)
    assert first is not None
    assert first.request.metadata["userid"] == "old"


def test_whoever_stays_away_for_long_saves_nothing_up() -> None:
    policy = weighted_fair()
    policy.add(ready(tenant="away"), 0.0)
    for _ in range(20):
        policy.add(ready(tenant="steady"), 0.0)
    assert len([policy.next(0.0) for _ in range(11)]) == 11
    for _ in range(10):
        policy.add(ready(tenant="away"), 5.0)
    turns = [each.request.metadata["userid"] for each in drained(policy, 5.0)][:10]
    assert Counter(turns) == {"away": 5, "steady": 5}


def test_a_tenants_places_leave_some_to_the_others() -> None:
    policy = weighted_fair(workers=12)
    assert policy.room(queue(), 0.0) == 12
    assert full(policy, lambda: ready(tenant="greedy")) == 8
    assert policy.add(ready(tenant="greedy"), 0.0) == "fair:greedy"
    assert policy.add(ready(tenant="modest"), 0.0) is None
    assert policy.lot_room(queue(), "fair:greedy", 0, {}) == 0
    assert policy.lot_room(queue(), "somebody else's", 0, {}) is None
    drained(policy)
    assert policy.lot_room(queue(), "fair:greedy", 0, {}) == 8


def test_tenants_have_places_by_their_weights() -> None:
    """Many slots that come free at once empty the lane, and then its contents are the shares."""
    policy = weighted_fair(workers=100, weights={"a": 3.0})
    for _ in range(1000):
        for tenant in "ab":
            policy.add(ready(tenant=tenant), 0.0)
        policy.next(0.0)
    taken = Counter(each.request.metadata["userid"] for each in drained(policy))
    assert taken == {"a": pytest.approx(60, abs=2), "b": pytest.approx(20, abs=2)}


def test_a_queue_of_one_tenant_claims_what_finds_a_place_and_looks_past_it_slowly() -> None:
    policy = weighted_fair(workers=12)
    full(policy, lambda: ready(tenant="greedy"))
    assert policy.room(queue(), 0.0) == 0
    looked_past = 0
    for now in range(1, 11):
        room = policy.room(queue(), float(now))
        looked_past += room
        for _ in range(room):
            assert policy.add(ready(tenant="greedy"), float(now)) == "fair:greedy"
    assert 0 < looked_past <= 12 * 11


def test_a_full_tenant_is_looked_past_as_long_as_that_finds_another() -> None:
    policy = weighted_fair(workers=12)
    policy.add(ready(tenant="rare"), 0.0)
    full(policy, lambda: ready(tenant="greedy"))
    policy.room(queue(), 0.0)
    drained_of_rare = policy.next(0.0)
    assert drained_of_rare is not None
    full(policy, lambda: ready(tenant="greedy"))
    assert policy.add(ready(tenant="rare"), 0.0) is None
    assert policy.room(queue(), 0.0) > 0


def test_a_lone_tenant_that_has_room_again_is_no_other_that_was_found() -> None:
    policy = weighted_fair(workers=12)
    full(policy, lambda: ready(tenant="greedy"))
    policy.room(queue(), 0.0)
    for _ in range(4):
        policy.next(0.0)
    assert policy.add(ready(tenant="greedy"), 0.0) is None
    expected = policy.room(queue(), 0.0)
    assert expected > 0
    policy.expect(queue(), expected)
    assert policy.room(queue(), 0.0) <= 0


def test_a_queue_of_its_own_is_not_held_up_by_anothers_full_tenant() -> None:
    policy = weighted_fair(workers=12)
    policy.add(ready(tenant="modest", name="theirs"), 0.0)
    full(policy, lambda: ready(tenant="greedy", name="ours"))
    assert policy.room(queue(name="ours"), 0.0) == 0
    assert policy.room(queue(name="theirs"), 0.0) > 0


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
            assert policy.add(waiting[-1], 0.0) is None
        elif step == 1 and waiting:
            policy.remove(waiting.pop(0), 0.0)
        else:
            taken = policy.next(0.0)
            assert (taken is None) == (not waiting)
            if taken is not None:
                waiting = [each for each in waiting if each is not taken]
                policy.remove(taken, 0.0)  # harmless
    left = drained(policy)
    assert {id(each) for each in left} == {id(each) for each in waiting}
    assert len(left) == len(waiting)


@pytest.mark.parametrize("make", [tier_priority, weighted_fair])
@given(
    workers=st.integers(1, 30),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["come", "come", "run", "back", "leave"]),
            st.sampled_from(TIERS),
            st.sampled_from([RESERVED, OVERFLOW]),
            st.sampled_from(["a", "b", "c"]),
        ),
        max_size=200,
    ),
)
def test_none_is_lost_between_lanes_and_lots_and_no_lane_hides_another(
    make: Any, workers: int, steps: list[tuple[str, str, Classification, str]]
) -> None:
    policy: MergePolicy = make(workers=workers)
    waiting: list[Ready] = []
    lots: dict[tuple[str, str], list[Ready]] = defaultdict(list)
    came: list[Ready] = []
    done: list[Ready] = []

    def come(request: Ready) -> None:
        lot = policy.add(request, 0.0)
        if lot is None:
            waiting.append(request)
        else:
            assert waiting, "an empty pool has a place for everybody"
            lots[request.queue.queue_name, lot].append(request)

    for step, tier, classification, tenant in steps:
        if step == "come":
            came.append(ready(tier, classification, tenant=tenant, lot=f"overflow {tenant}"))
            come(came[-1])
        elif step == "leave" and waiting:
            policy.remove(waiting[0], 0.0)
            done.append(waiting.pop(0))
        elif step == "run" and (taken := policy.next(0.0)) is not None:
            waiting.remove(taken)
            done.append(taken)
        elif step == "back":
            for (name, lot), parked in list(lots.items()):
                room = policy.lot_room(queue(name.removeprefix("queue-")), lot, 0, {}) or 0
                back, lots[name, lot] = parked[:room], parked[room:]
                for request in back:
                    come(request)
        assert len(waiting) <= workers + 5 * max(2, workers // 12)
        assert all(policy.room(queue(each), 0.0) <= workers for each in TIERS)
    left = drained(policy)
    assert sorted(map(id, left)) == sorted(map(id, waiting))
    parked = [request for each in lots.values() for request in each]
    assert sorted(map(id, came)) == sorted(map(id, [*left, *done, *parked]))


def test_an_empty_lane_has_nobody_next() -> None:
    lane, only = Lane(), ready()
    lane.add("group", only, 1.0, 0.0)
    assert lane.oldest() is only
    assert lane.remove("group", only, 0.0)
    assert not lane.remove("group", only, 0.0)
    assert lane.next(0.0) is None
    assert len(lane) == lane.size("group") == 0


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"max_tokens":100}', 100 + 18 / 4),
        (b'{"max_tokens":100,"n":2}', 200 + 24 / 4),
        (b'{"max_completion_tokens":7,"max_tokens":100}', 7 + 44 / 4),
        (b"{}", 256 + 2 / 4),
        (b'{"max_tokens":"many"}', 256 + 21 / 4),
        (b'{"max_tokens":-5}', 1.0 * 17 / 4),
        (b'{"max_tokens":true}', 256 + 19 / 4),
        (b'{"max_tokens":100,"n":-3}', 100 + 25 / 4),
        (b'{"max_tokens":100,"n":1e10}', 100 * 128 + 27 / 4),
        (b'{"max_tokens":1e20}', cost.MOST_TOKENS),
        (b'{"max_tokens":1e308,"n":1e10}', cost.MOST_TOKENS),
        (b'{"max_tokens":1e400}', 256 + 20 / 4),
        (b'{"max_tokens":NaN}', 256 + 18 / 4),
    ],
)
def test_tokens_are_those_asked_for_and_the_prompts_size(payload: bytes, expected: float) -> None:
    assert cost.tokens(Request(id="r", deadline=1, payload=payload)) == pytest.approx(expected)


def test_a_payload_that_is_stored_apart_counts_as_one_without_a_limit() -> None:
    assert cost.tokens(Request(id="r", deadline=1, payload=None)) == cost.UNLIMITED_TOKENS


amounts = st.one_of(st.floats(), st.integers(), st.booleans(), st.text(max_size=3), st.none())


@given(asked=st.lists(st.tuples(amounts, amounts, st.sampled_from("abc")), max_size=40))
def test_no_message_can_upset_the_policy_or_the_shares_of_others(
    asked: list[tuple[Any, Any, str]],
) -> None:
    policy = weighted_fair(workers=16, cost=cost.tokens)
    for most, count, tenant in asked:
        payload = json.dumps({"max_tokens": most, "n": count}).encode()
        policy.add(ready(tenant=tenant, payload=payload), 0.0)
        policy.room(queue(), 0.0)
        policy.choose([queue()], 0.0)
        policy.next(0.0)
    drained(policy)
    served: Counter[str] = Counter()
    for _ in range(200):
        for tenant in "xy":
            full(policy, lambda tenant=tenant: ready(tenant=tenant))  # type: ignore[misc]
        taken = policy.next(5.0)
        assert taken is not None
        served[taken.request.metadata["userid"]] += 1
    assert served == {"x": 100, "y": 100}


def test_a_seat_costs_the_same_however_many_tenants_share_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []
    size = Lane.size

    def counted(lane: Lane, group: str) -> int:
        looks.append(group)
        return size(lane, group)

    monkeypatch.setattr(Lane, "size", counted)
    policy = weighted_fair(workers=1000)
    for number in range(1000):
        policy.add(ready(tenant=f"t{number}"), 1.0)
    assert len(looks) == 1000
    looks.clear()
    for _ in range(256):
        policy.room(queue(), 1.0)
        policy.expect(queue(), +1)
    assert len(looks) <= SAMPLE
    assert policy.next(1.0) is not None
    looks.clear()
    policy.room(queue(), 1.0)
    assert 0 < len(looks) <= SAMPLE


def test_what_is_looked_past_is_not_asked_what_it_costs() -> None:
    asked: list[str] = []

    def price(request: Request) -> float:
        asked.append(request.id)
        return 1.0

    policy = weighted_fair(workers=12, cost=price)
    standing = full(policy, lambda: ready(tenant="greedy"))
    for _ in range(100):
        assert policy.add(ready(tenant="greedy"), 0.0) == "fair:greedy"
    assert len(asked) == standing


def test_a_long_name_of_a_tenant_makes_no_long_lot_and_keeps_its_weight() -> None:
    name = "t" * 100_000
    policy = weighted_fair(workers=12, weights={name: 3.0})
    full(policy, lambda: ready(tenant=name))
    lot = policy.add(ready(tenant=name), 0.0)
    assert lot is not None
    assert len(lot) <= 250
    full(policy, lambda: ready(tenant="other"))
    first = [each.request.metadata["userid"] for each in drained(policy)][:4]
    assert Counter(first) == {name: 3, "other": 1}
