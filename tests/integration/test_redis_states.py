"""Each command of the Redis transport as a table: all keys before, the call, all keys after."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from async_processor.errors import BrokerUnavailable
from async_processor.redis_io.keys import go_claim_keys, queue_keys
from async_processor.testing.messages import DEADLINE, message
from async_processor.testing.redis_probe import RedisProbe, redis_probe
from async_processor.testing.servers import server_binaries
from async_processor.testing.stage import (
    QUEUE,
    SHORT_LEASE,
    answer,
    claim_one,
    ids,
    reclaim,
    submit,
)
from async_processor.transport.base import Bury, Delivery, Release, Retry, Settlement
from async_processor.wire import dead_letter, result
from async_processor.wire.envelope import read, score

KEYS = queue_keys(QUEUE)
SERVERS = server_binaries()


@pytest.fixture(params=SERVERS)
async def probe(request: pytest.FixtureRequest) -> AsyncIterator[RedisProbe]:
    async with redis_probe(SERVERS[request.param]) as probe:
        yield probe


def claimed(delivery: Delivery) -> dict[str, Any]:
    """The private keys while one message is claimed, leases aside."""
    return {KEYS.claims: {delivery.token.encode(): delivery.body}}


async def state(probe: RedisProbe) -> dict[str, Any]:
    """All keys but the leases, whose ends are times."""
    keyspace = await probe.keyspace()
    keyspace.pop(KEYS.leases, None)
    return keyspace


def sha1(body: bytes) -> bytes:
    return hashlib.sha1(body).hexdigest().encode()


async def test_claim_moves_the_message_under_a_lease(probe: RedisProbe) -> None:
    first, second = await submit(probe, "a", seq=1), await submit(probe, "b", seq=2)
    replica = await probe.replica(lease_ttl=60)
    assert await state(probe) == {QUEUE: {first: score(DEADLINE, 1), second: score(DEADLINE, 2)}}

    (delivery,) = await replica.claim(QUEUE, 1, suspects=False)

    assert await state(probe) == {QUEUE: {second: score(DEADLINE, 2)}, **claimed(delivery)}
    lease_end = (await probe.waiting(KEYS.leases))[delivery.token.encode()]
    assert lease_end / 1000 == pytest.approx(await probe.now() + 60, abs=10)


async def test_post_leaves_a_result_and_nothing_else(probe: RedisProbe) -> None:
    await submit(probe, "a", token="t", internal={"payload_ref": "request-payload:a:t"})
    for key in ("request-active:a", "request-cancel:a", "request-payload:a:t"):
        await probe.set_key(key, b"t")
    replica = await probe.replica()
    delivery = await claim_one(replica)
    post = answer(delivery)

    assert await replica.settle(delivery, post) is Settlement.DONE

    assert await probe.keyspace() == {"result-list": [result.encode(post.result)]}


async def test_post_spares_the_keys_of_another_generation(probe: RedisProbe) -> None:
    await submit(probe, "a", token="old")
    await probe.set_key("request-active:a", b"new")
    await probe.client.execute("LPUSH", "request-cancel:a", "of another type")
    replica = await probe.replica()
    delivery = await claim_one(replica)

    assert await replica.settle(delivery, answer(delivery)) is Settlement.DONE

    assert set(await probe.keyspace()) == {"result-list", "request-active:a", "request-cancel:a"}


async def test_retry_leaves_the_new_body_with_its_due_time(probe: RedisProbe) -> None:
    body = await submit(probe, "a")
    replica = await probe.replica()
    delivery = await claim_one(replica)
    again = read(body).rewritten(retry_count=1, request_queue_name=QUEUE)

    await replica.settle(delivery, Retry(body=again, due_at=DEADLINE - 0.5))

    assert await probe.keyspace() == {"retry-sortedset": {again: DEADLINE - 0.5}}


@pytest.mark.parametrize("new_score", [None, DEADLINE + 7.25])
async def test_release_puts_the_message_back(probe: RedisProbe, new_score: float | None) -> None:
    body = await submit(probe, "a", seq=5)
    replica = await probe.replica()

    await replica.settle(await claim_one(replica), Release(score=new_score))

    assert await probe.keyspace() == {QUEUE: {body: new_score or score(DEADLINE, 5)}}


async def test_bury_leaves_a_letter_and_the_result(probe: RedisProbe) -> None:
    raw = b"\xff not JSON"
    await probe.submit(QUEUE, raw, 1.0)
    replica = await probe.replica()
    delivery = await claim_one(replica)
    post = answer(delivery)

    await replica.settle(delivery, Bury(reason="unreadable", post=post))

    (letter,) = await probe.dead_letters()
    assert (letter.body, letter.reason, letter.queue_name) == (raw, "unreadable", QUEUE)
    assert set(await probe.keyspace()) == {"dead-letter-list", "result-list"}


async def test_reclaim_counts_a_delivery_and_settling_forgets_it(probe: RedisProbe) -> None:
    body = await submit(probe, "a")
    await claim_one(await probe.replica(lease_ttl=SHORT_LEASE))
    replica = await probe.replica()

    await reclaim(replica, 1)

    assert await probe.keyspace() == {
        QUEUE: {body: float(DEADLINE)},
        KEYS.deliveries: {sha1(body): b"1"},
    }
    delivery = await claim_one(replica)
    assert delivery.deliveries == 1
    await replica.settle(delivery, answer(delivery))
    assert set(await probe.keyspace()) == {"result-list"}


async def test_reclaim_drops_counts_of_what_is_no_longer_there(probe: RedisProbe) -> None:
    body = await submit(probe, "a")
    await claim_one(await probe.replica(lease_ttl=SHORT_LEASE))
    replica = await probe.replica()
    await reclaim(replica, 1)
    await probe.client.execute("ZREM", QUEUE, body)

    await replica.reclaim(QUEUE)

    assert await probe.keyspace() == {}


async def test_who_lost_the_lease_writes_nothing(probe: RedisProbe) -> None:
    await submit(probe, "a", token="t")
    await probe.set_key("request-active:a", b"t")
    zombie = await probe.replica(lease_ttl=SHORT_LEASE)
    lost = await claim_one(zombie)
    heir = await probe.replica()
    await reclaim(heir, 1)
    await claim_one(heir)
    before = await probe.keyspace()

    for outcome in (answer(lost), Retry(body=b"{}", due_at=1.0), Release(), Bury(reason="x")):
        assert await zombie.settle(lost, outcome) is Settlement.GONE

    assert await probe.keyspace() == before
    assert await zombie.extend([lost]) == {lost.token}


async def test_stop_gives_back_uncounted(probe: RedisProbe) -> None:
    bodies = {await submit(probe, f"r-{n}", seq=n): score(DEADLINE, n) for n in range(1, 251)}
    replica = await probe.replica()
    assert len(await replica.claim(QUEUE, 250, suspects=False)) == 250
    assert await state(probe) != {QUEUE: bodies}

    await replica.stop()

    assert await probe.keyspace() == {QUEUE: bodies}


async def test_due_retries_return_under_their_own_deadline(probe: RedisProbe) -> None:
    due = message("a", seq=3, internal={"request_queue_name": QUEUE})
    later = message("b", internal={"request_queue_name": QUEUE})
    await probe.client.execute("ZADD", "retry-sortedset", 1, due, DEADLINE, later)
    replica = await probe.replica()

    assert await replica.promote_retries() == DEADLINE

    assert await probe.keyspace() == {
        QUEUE: {due: score(DEADLINE, 3)},
        "retry-sortedset": {later: float(DEADLINE)},
    }


async def test_retries_that_belong_nowhere_go_to_the_first_queue(probe: RedisProbe) -> None:
    homeless = message("a", seq=1)
    to_itself = message("b", seq=2, internal={"request_queue_name": "retry-sortedset"})
    to_a_list = message("c", seq=3, internal={"request_queue_name": "a-list"})
    await probe.client.execute("LPUSH", "a-list", "x")
    for body in (homeless, to_itself, to_a_list, b"\x00"):
        await probe.client.execute("ZADD", "retry-sortedset", 1, body)
    replica = await probe.replica()

    assert await replica.promote_retries() is None

    scores = dict(await probe.waiting(QUEUE))
    assert scores.pop(b"\x00") == pytest.approx(await probe.now(), abs=10)
    assert scores == {
        homeless: score(DEADLINE, 1),
        to_itself: score(DEADLINE, 2),
        to_a_list: score(DEADLINE, 3),
    }
    assert set(await probe.keyspace()) == {QUEUE, "a-list"}


async def test_retries_that_no_queue_takes_stay_and_hold_up_no_others(probe: RedisProbe) -> None:
    later = message("later", internal={"request_queue_name": "other"})
    other = message("other", internal={"request_queue_name": "other"})
    stuck = [message(f"r-{n}", internal={"request_queue_name": QUEUE}) for n in range(150)]
    replica = await probe.replica()
    await probe.set_key(QUEUE, b"not a set")
    for body in stuck:
        await probe.client.execute("ZADD", "retry-sortedset", 1, body)
    await probe.client.execute("ZADD", "retry-sortedset", 2, other, DEADLINE, later)

    assert await replica.promote_retries() == DEADLINE, "what is stuck is not due at once again"

    assert set(await probe.waiting("other")) == {other}
    assert set(await probe.waiting("retry-sortedset")) == {*stuck, later}
    await probe.client.execute("DEL", QUEUE)
    assert await replica.promote_retries() == DEADLINE
    assert set(await probe.waiting(QUEUE)) == set(stuck)


async def test_expired_claims_of_the_go_implementation_return(probe: RedisProbe) -> None:
    keys = go_claim_keys(QUEUE, clustered=False)
    dead, alive = message("dead", token="t", seq=2), message("alive")
    for claim_id, body, lease_end in (("dead\0t", dead, 1), ("alive", alive, DEADLINE)):
        await probe.client.execute("HSET", keys.claimed, claim_id, body)
        await probe.client.execute("HSET", keys.owners, claim_id, "owner")
        await probe.client.execute("ZADD", keys.index, lease_end, claim_id)
    await probe.client.execute("ZADD", keys.index, 1, "without a body")
    replica = await probe.replica()

    assert await replica.reclaim(QUEUE) == 1

    assert await probe.keyspace() == {
        QUEUE: {dead: score(DEADLINE, 2)},
        keys.claimed: {b"alive": alive},
        keys.owners: {b"alive": b"owner"},
        keys.index: {b"alive": float(DEADLINE)},
    }


async def test_a_result_list_of_another_type_is_passed_over(probe: RedisProbe) -> None:
    await submit(probe, "a")
    await probe.set_key("mine", b"not a list")
    replica = await probe.replica()
    delivery = await claim_one(replica)
    post = answer(delivery, "mine", expires_after=60)

    assert await replica.settle(delivery, post) is Settlement.DONE

    assert await probe.keyspace() == {
        "mine": b"not a list",
        "result-list": [result.encode(post.result)],
    }
    assert await probe.result_lifetime("result-list") is None


async def test_a_result_that_no_list_takes_lies_in_the_dead_letter(probe: RedisProbe) -> None:
    body = await submit(probe, "a")
    replica = await probe.replica()
    await probe.set_key("result-list", b"not a list")
    delivery = await claim_one(replica)
    post = answer(delivery)

    assert await replica.settle(delivery, post) is Settlement.BURIED

    (letter,) = await probe.dead_letters()
    assert letter.body == body
    assert letter.result == result.encode(post.result).decode()
    assert "WRONGTYPE" in letter.reason
    assert set(await probe.keyspace()) == {"result-list", "dead-letter-list"}


async def test_a_letter_that_the_dead_letters_do_not_take_is_stranded(probe: RedisProbe) -> None:
    body = await submit(probe, "a")
    replica = await probe.replica()
    await probe.set_key("dead-letter-list", b"not a list")

    await replica.settle(await claim_one(replica), Bury(reason="poison"))

    (letter,) = await probe.results(KEYS.stranded)
    assert dead_letter.decode(letter).body == body
    assert set(await probe.keyspace()) == {"dead-letter-list", KEYS.stranded}


async def test_a_retry_that_the_retry_set_does_not_take_is_due_at_once(probe: RedisProbe) -> None:
    await submit(probe, "a", seq=4)
    replica = await probe.replica()
    await probe.set_key("retry-sortedset", b"not a set")

    await replica.settle(await claim_one(replica), Retry(body=b"{}", due_at=DEADLINE))

    assert (await probe.keyspace())[QUEUE] == {b"{}": score(DEADLINE, 4)}


async def test_a_refused_settlement_harms_no_other_and_loses_nothing(probe: RedisProbe) -> None:
    body = await submit(probe, "a", seq=1)
    await submit(probe, "b", seq=2)
    replica = await probe.replica()
    refused, other = await replica.claim(QUEUE, 2, suspects=False)
    await probe.client.execute("SET", QUEUE, "not a set")

    refusal, settled = await asyncio.gather(
        replica.settle(refused, Release()), replica.settle(other, answer(other))
    )

    assert (refusal, settled) == (Settlement.GONE, Settlement.DONE)
    assert (await state(probe))[KEYS.claims] == {refused.token.encode(): body}
    await probe.client.execute("DEL", QUEUE)
    await replica.stop()
    assert await probe.waiting(QUEUE) == {body: score(DEADLINE, 1)}


async def test_a_claim_of_a_key_of_another_type_changes_nothing(probe: RedisProbe) -> None:
    replica = await probe.replica()
    await probe.client.execute("SET", QUEUE, "not a set")
    with pytest.raises(BrokerUnavailable, match="WRONGTYPE"):
        await replica.claim(QUEUE, 1, suspects=False)
    assert await probe.keyspace() == {QUEUE: b"not a set"}


async def test_scripts_that_the_server_forgot_are_loaded_again(probe: RedisProbe) -> None:
    await submit(probe, "a")
    replica = await probe.replica()
    delivery = await claim_one(replica)
    await probe.client.execute("SCRIPT", "FLUSH")
    assert await replica.settle(delivery, answer(delivery)) is Settlement.DONE
    assert len(await probe.results("result-list")) == 1


async def test_a_claim_stops_at_its_bytes_but_takes_one_of_any_size(probe: RedisProbe) -> None:
    for number in range(1, 6):
        await submit(probe, f"r-{number}", seq=number, note="x" * 1000)
    replica = probe.stopped_replica(claim_bytes=2500)
    await replica.start()
    assert len(await replica.claim(QUEUE, 10, suspects=False)) == 3
    await submit(probe, "large", seq=0, note="x" * 5000)
    assert ids(await replica.claim(QUEUE, 10, suspects=False)) == ["large"]


async def test_many_suspects_are_looked_past_in_few_steps(probe: RedisProbe) -> None:
    suspects = [await submit(probe, f"s-{n}", seq=n + 1) for n in range(100)]
    for body in suspects:
        await probe.client.execute("HSET", KEYS.deliveries, sha1(body), 2)
    for number in range(3):
        await submit(probe, f"calm-{number}", seq=200 + number)
    replica = await probe.replica()
    before = await looks(probe)

    assert ids(await replica.claim(QUEUE, 2, suspects=False)) == ["calm-0", "calm-1"]
    assert ids(await replica.claim(QUEUE, 2, suspects=True)) == ["s-0", "calm-2"]

    assert await looks(probe) - before < 15


async def looks(probe: RedisProbe) -> int:
    """How often a queue was looked through."""
    stats: bytes = await probe.client.execute("INFO", "commandstats")
    found = re.search(rb"cmdstat_zrangebyscore:calls=(\d+)", stats)
    return int(found[1]) if found else 0


async def test_many_leases_are_extended_at_once(probe: RedisProbe) -> None:
    for number in range(1, 2502):
        await submit(probe, f"r-{number}", seq=number)
    replica = await probe.replica()
    deliveries = await replica.claim(QUEUE, 3000, suspects=False)
    assert len(deliveries) == 2501
    await probe.client.execute("DEL", KEYS.leases)
    assert await replica.extend(deliveries) == {delivery.token for delivery in deliveries}
