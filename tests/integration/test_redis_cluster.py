"""Redis Cluster, proved on a real cluster of one node that serves every slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from async_processor.admission.base import Continue
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import RedisQuotaGate
from async_processor.clock import SystemClock
from async_processor.errors import ConfigurationError
from async_processor.fields import Confirm, TlsSettings
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import follow_cluster, open_client
from async_processor.redis_io.keys import go_claim_keys
from async_processor.redis_io.queue_report import read_report
from async_processor.testing.candidates import candidate
from async_processor.testing.eventually import eventually, until
from async_processor.testing.messages import DEADLINE, message
from async_processor.testing.servers import RedisServer, free_port, server_binaries
from async_processor.testing.stage import SHORT_LEASE, answer, reclaim
from async_processor.transport.base import Bury, Park, Release, Retry, Settlement
from async_processor.transport.redis_sorted_set import RedisSortedSet
from async_processor.transport.settings import RedisSettings

SERVERS = server_binaries()
QUEUE = "{llm}:requests"


@pytest.fixture(params=SERVERS)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The URL of the cluster."""
    bus = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
    with RedisServer(SERVERS[request.param], bus) as server:
        node = open_client(server.url)
        await node.execute("CLUSTER", "ADDSLOTSRANGE", 0, 16383)

        async def ready() -> bool:
            return b"cluster_state:ok" in await node.execute("CLUSTER", "INFO")

        await eventually(ready)
        await node.close()
        yield server.url


@pytest.fixture
async def client(cluster: str) -> AsyncIterator[RedisClient]:
    client = await follow_cluster(open_client(cluster), cluster, tls=TlsSettings())
    assert client.clustered
    yield client
    await client.close()


def settings(url: str, **changes: object) -> RedisSettings:
    names = {
        "result_queue_name": "{llm}:results",
        "retry_queue_name": "{llm}:retries",
        "dead_letter_queue_name": "{llm}:dead-letters",
    }
    return RedisSettings.model_validate({"url": url, **names, **changes})


async def test_the_whole_way_of_a_request(cluster: str, client: RedisClient) -> None:
    transport = RedisSortedSet(settings(cluster), [QUEUE])
    await transport.start()
    for number in range(1, 5):
        body = message(f"r-{number}", token="t", seq=number, internal={"request_queue_name": QUEUE,
                       "payload_ref": f"request-payload:r-{number}:t"})  # fmt: skip
        await client.execute("ZADD", QUEUE, DEADLINE + number, body)
        await client.execute("SET", f"request-active:r-{number}", "t")
    await client.execute("SET", "request-payload:r-1:t", "{}")
    await client.execute("SET", "request-cancel:r-2", "t")
    assert await transport.wait_for_work(QUEUE, 10)

    posted, retried, released, buried = await transport.claim(QUEUE, 4, suspects=False)

    assert await transport.stored_payload(posted) == b"{}"
    assert await transport.cancelled([posted, retried]) == {retried.token}
    assert await transport.extend([posted]) == set()
    for delivery, outcome in (
        (posted, answer(posted, "{llm}:results")),
        (retried, Retry(body=retried.body, due_at=1.0)),
        (released, Release()),
        (buried, Bury(reason="poison")),
    ):
        assert await transport.settle(delivery, outcome) is Settlement.DONE
    assert await transport.promote_retries() is None
    backlog = await transport.backlog(QUEUE, [0])
    assert (backlog.waiting, backlog.leased, backlog.dead_letters) == (2, 0, 1)
    assert await transport.next_expiry(QUEUE) == pytest.approx(DEADLINE, abs=10)
    left = set(await client.execute("KEYS", "*"))
    assert left == {
        *(b"{llm}:requests", b"{llm}:results", b"{llm}:dead-letters"),
        *(b"request-active:r-2", b"request-active:r-3", b"request-cancel:r-2"),
    }
    await transport.stop()


async def test_leases_are_taken_back_and_freed(cluster: str, client: RedisClient) -> None:
    dead = RedisSortedSet(settings(cluster, lease_ttl=SHORT_LEASE))
    heir = RedisSortedSet(settings(cluster, lease_ttl=5.0), [QUEUE])
    await dead.start()
    await heir.start()
    await client.execute("ZADD", QUEUE, DEADLINE, message("a"))
    assert len(await dead.claim(QUEUE, 1, suspects=False)) == 1
    keys = go_claim_keys(QUEUE, clustered=True)
    await client.execute("HSET", keys.claimed, "b", message("b"))
    await client.execute("ZADD", keys.index, 1, "b")
    await reclaim(heir, 2, QUEUE)
    assert len(await heir.claim(QUEUE, 9, suspects=False)) == 2
    await heir.stop()
    await dead.stop()
    assert await client.execute("ZCARD", QUEUE) == 2


async def test_who_lost_the_lease_spares_the_keys_of_the_request(
    cluster: str, client: RedisClient
) -> None:
    zombie = RedisSortedSet(settings(cluster, lease_ttl=SHORT_LEASE))
    heir = RedisSortedSet(settings(cluster, lease_ttl=5.0), [QUEUE])
    await zombie.start()
    await heir.start()
    await client.execute("ZADD", QUEUE, DEADLINE, message("a", token="t"))
    await client.execute("SET", "request-active:a", "t")
    (lost,) = await zombie.claim(QUEUE, 1, suspects=False)
    await reclaim(heir, 1, QUEUE)
    (taken,) = await heir.claim(QUEUE, 1, suspects=False)

    assert await zombie.settle(lost, answer(lost, "{llm}:results")) is Settlement.GONE

    assert await client.execute("GET", "request-active:a") == b"t"
    assert await heir.settle(taken, answer(taken, "{llm}:results")) is Settlement.DONE
    assert await client.execute("GET", "request-active:a") is None
    await zombie.stop()
    await heir.stop()


async def test_messages_park_and_come_back(cluster: str, client: RedisClient) -> None:
    transport = RedisSortedSet(settings(cluster), [QUEUE])
    await transport.start()
    for number in range(4):
        await client.execute("ZADD", QUEUE, DEADLINE + number, message(f"r-{number}"))
    for number, delivery in enumerate(await transport.claim(QUEUE, 4, suspects=False)):
        await transport.settle(delivery, Park(lot=f"{{lot}} {number % 2}"))
    backlog = await transport.backlog(QUEUE, [0])
    assert (backlog.waiting, backlog.parked, backlog.deadlines) == (0, 4, (0, 4))
    assert await transport.next_expiry(QUEUE) == DEADLINE
    for lot in await transport.lots(QUEUE):
        assert await transport.recall(QUEUE, lot, 9) == 2
    assert await client.execute("KEYS", "*") == [QUEUE.encode()]
    await transport.stop()


async def test_a_look_finds_what_is_parked_and_retries_in_another_slot(
    cluster: str, client: RedisClient
) -> None:
    transport = RedisSortedSet(settings(cluster), [QUEUE])
    await transport.start()
    await client.execute("ZADD", QUEUE, DEADLINE, message("r-1"))
    (delivery,) = await transport.claim(QUEUE, 1, suspects=False)
    await transport.settle(delivery, Park(lot="tenant"))
    await client.execute("ZADD", QUEUE, DEADLINE + 9, message("r-2"))
    await client.execute("ZADD", "retries", DEADLINE + 1, message("r-3"))

    report = await read_report(client, QUEUE, retry_queue="retries", dead_letter_queue="dead")

    assert (report.waiting, report.parked, report.oldest_deadline) == (1, 1, DEADLINE)
    assert (report.retries, report.next_retry) == (1, DEADLINE + 1)
    await transport.stop()


@pytest.mark.parametrize("mode", ["concurrency", "rate-limit"])
async def test_quotas_of_several_tenants_are_one_slots_business(cluster: str, mode: str) -> None:
    context = GateContext(prometheus=None, clock=SystemClock(), redis_url=cluster)
    quota = RedisQuotaGate.model_validate({"mode": mode, "limit": 1})
    gate = build_gate(quota, context, workers=LiveNumber(8))
    await gate.start()
    await until(lambda: gate.state().available)
    verdicts = await asyncio.gather(
        *(
            gate.admit(candidate(f"r-{number}", metadata={"userid": f"t-{number % 3}"}))
            for number in range(6)
        )
    )
    assert [isinstance(verdict, Continue) for verdict in verdicts] == [True] * 3 + [False] * 3
    for service in (gate, context.redis):
        await service.stop()


@pytest.mark.parametrize(
    ("queues", "changes", "says"),
    [
        ([QUEUE], {"result_queue_name": "results"}, "{llm}:results"),
        (["requests"], {}, "{requests}:"),
        (["{a}:x", "{b}:x"], {}, "share a hash tag"),
        (["a}"], {}, "no brace"),
    ],
)
async def test_names_in_other_slots_are_refused_with_the_fix(
    cluster: str, queues: list[str], changes: dict[str, object], says: str
) -> None:
    transport = RedisSortedSet(settings(cluster, **changes), queues)
    with pytest.raises(ConfigurationError) as caught:
        await transport.start()
    assert says in str(caught.value)
    await transport.stop()


async def test_confirming_is_refused_with_what_serves_there(cluster: str) -> None:
    transport = RedisSortedSet(settings(cluster, confirm=Confirm(replicas=1)), [QUEUE])
    with pytest.raises(ConfigurationError, match=r"transport\.confirm.*min-replicas-to-write"):
        await transport.start()
    await transport.stop()


async def test_a_result_queue_in_another_slot_is_passed_over(
    cluster: str, client: RedisClient
) -> None:
    transport = RedisSortedSet(settings(cluster), [QUEUE])
    await transport.start()
    for number in range(2):
        await client.execute("ZADD", QUEUE, DEADLINE + number, message(f"r-{number}", token="t"))
    mailbox, other = await transport.claim(QUEUE, 2, suspects=False)

    settled = await asyncio.gather(
        transport.settle(mailbox, answer(mailbox, "request-result:r-0:t", expires_after=60)),
        transport.settle(other, answer(other, "{llm}:results")),
    )

    assert set(settled) == {Settlement.DONE}
    assert await client.execute("LLEN", "{llm}:results") == 2
    await transport.stop()
