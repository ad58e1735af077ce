"""Proves what becomes of dead letters: requeued with all that belongs to them, answered by the
result that they hold, brought in from where they were stranded, and read whatever they are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from async_processor.cli.letter_words import facts, row, whole
from async_processor.errors import BrokerRefused
from async_processor.fields import TlsSettings
from async_processor.producer.connection import Connection
from async_processor.producer.dead_letters import DeadLetters, Letter
from async_processor.producer.errors import InvalidSubmission
from async_processor.redis_io.dead_letter_store import DeadLetterStore
from async_processor.redis_io.keys import queue_keys
from async_processor.redis_io.queue_report import read_report
from async_processor.testing.redis_probe import RedisProbe, probing
from async_processor.testing.stage import QUEUE, RESULTS, answer, claim_one, submit
from async_processor.transport.base import Bury, Post
from async_processor.wire import dead_letter, result
from async_processor.wire.names import mailbox, payload_key

DEAD = "dead-letter-list"
STRANDED = queue_keys(QUEUE).stranded
PAYLOAD = payload_key("a", "t")
MiB = 2**20


@pytest.fixture
async def probe(redis_url: str) -> AsyncIterator[RedisProbe]:
    async with probing(redis_url) as probe:
        yield probe


@pytest.fixture
async def letters(redis_url: str) -> AsyncIterator[DeadLetters]:
    connection = Connection(redis_url, TlsSettings(), 3.0)
    await connection.open()
    yield DeadLetters(connection, DEAD, results=RESULTS)
    await connection.close()


async def only(letters: DeadLetters) -> Letter:
    (letter,) = [letter async for letter in letters.each()]
    return letter


async def bury_with_payload(probe: RedisProbe) -> None:
    """A request whose payload is stored apart, buried with a result as a poisonous one is."""
    await submit(probe, "a", token="t", internal={"payload_ref": PAYLOAD})
    await probe.client.execute("SET", PAYLOAD, '{"prompt": "hi"}', "EX", 1000)
    replica = await probe.replica()
    delivery = await claim_one(replica)
    await replica.settle(delivery, Bury(reason="poison", post=answer(delivery)))


async def test_a_requeued_request_has_its_stored_payload_for_as_long_as_it_may_wait(
    probe: RedisProbe, letters: DeadLetters
) -> None:
    await bury_with_payload(probe)

    assert await letters.requeue(await only(letters), "24h")

    replica = await probe.replica()
    assert await replica.stored_payload(await claim_one(replica)) == b'{"prompt": "hi"}'
    assert await probe.client.execute("TTL", PAYLOAD) > 24 * 3600


async def test_a_request_whose_stored_payload_is_gone_is_not_requeued(
    probe: RedisProbe, letters: DeadLetters
) -> None:
    await bury_with_payload(probe)
    await probe.client.execute("DEL", PAYLOAD)

    with pytest.raises(InvalidSubmission, match="payload 'request-payload:a:t' is gone"):
        await letters.requeue(await only(letters), "24h")

    assert set(await probe.keyspace()) == {RESULTS, DEAD}


async def test_a_requeued_request_can_be_cancelled_before_it_can_run(
    probe: RedisProbe, letters: DeadLetters
) -> None:
    """Its mark is written first, so a command that dies in between leaves no request without."""
    await bury_with_payload(probe)
    letter = await only(letters)
    await probe.client.execute("SET", QUEUE, "no queue")

    with pytest.raises(BrokerRefused, match="WRONGTYPE"):
        await letters.requeue(letter, "24h")

    assert await probe.get_key("request-active:a") == b"t"
    assert len(await probe.dead_letters()) == 1


async def without_place(probe: RedisProbe, *, to: str) -> bytes:
    """Settle a request whose result no list takes, and mend the lists; returns the result."""
    await submit(probe, "a", token="t")
    replica = await probe.replica()
    delivery = await claim_one(replica)
    await probe.set_key(to, b"no list")
    await probe.set_key(RESULTS, b"no list")
    post = Post(result=answer(delivery).result, result_queue=to, expires_after=100.0)
    await replica.settle(delivery, post)
    return result.encode(post.result)


async def test_a_result_that_a_letter_holds_goes_to_its_list(
    probe: RedisProbe, letters: DeadLetters
) -> None:
    box = mailbox("a", "t")
    held = await without_place(probe, to=box)
    letter = await only(letters)
    with pytest.raises(BrokerRefused, match=f"the result queue {box} is a string"):
        await letters.post(letter)
    with pytest.raises(InvalidSubmission, match="it has run"):
        await letters.requeue(letter, "1h")
    await probe.client.execute("DEL", box, RESULTS)

    assert await letters.post(letter)
    assert not await letters.post(letter), "somebody else has posted it"

    assert await probe.keyspace() == {box: [held]}
    lifetime = await probe.result_lifetime(box)
    assert lifetime is not None
    assert 0 < lifetime <= 100


async def test_a_result_without_a_list_of_its_own_goes_to_the_usual_one(
    probe: RedisProbe, letters: DeadLetters
) -> None:
    letter = dead_letter.encode(
        b"{}", reason="old", queue_name=QUEUE, buried_at=1.0, deliveries=0, result=b'{"id": "a"}'
    )
    await probe.client.execute("LPUSH", DEAD, letter)
    assert await letters.post(await only(letters))
    assert await probe.keyspace() == {RESULTS: [b'{"id": "a"}']}


async def test_stranded_letters_are_counted_and_brought_in_once_that_can_be(
    probe: RedisProbe,
) -> None:
    replica = await probe.replica()
    await probe.set_key(DEAD, b"no list")
    for name in ("a", "b"):
        await submit(probe, name)
        await replica.settle(await claim_one(replica), Bury(reason=name))

    await replica.reclaim(QUEUE)

    assert await probe.client.execute("LLEN", STRANDED) == 2
    await probe.client.execute("DEL", DEAD)
    assert (await replica.backlog(QUEUE, ())).dead_letters == 2
    report = await read_report(
        probe.client, QUEUE, retry_queue="retry-sortedset", dead_letter_queue=DEAD
    )
    assert (report.dead_letters, report.stranded) == (0, 2)

    await replica.reclaim(QUEUE)

    assert [letter.reason for letter in await probe.dead_letters()] == ["a", "b"]
    assert set(await probe.keyspace()) == {DEAD}
    assert (await replica.backlog(QUEUE, ())).dead_letters == 2


ODD = {
    "broken base64": b'{"reason": "r", "queue_name": "q", "buried_at": 0, "message_base64": "a"}',
    "nested too deeply": b'{"reason": "r", "queue_name": "q", "buried_at": 0, "x": '
    + b"[" * 100_000,
    "no JSON": b"\x1b[2J\n",
    "far future": b'{"reason": "r", "queue_name": "q", "buried_at": 1e300, "message": "{}"}',
    "far past": b'{"reason": "r", "queue_name": "q", "buried_at": -1e300, "message": "{}"}',
    "control characters": json.dumps(
        {"reason": "r\x1b[2J", "queue_name": "q\nx", "buried_at": 1, "message": '{"id":"a\\u001b"}'}
    ).encode(),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_an_odd_letter_is_shown_in_one_line_and_can_be_purged(
    probe: RedisProbe, letters: DeadLetters, odd: bytes
) -> None:
    await probe.client.execute("LPUSH", DEAD, odd)
    letter = await only(letters)
    assert len(row(letter).splitlines()) == 1
    assert "\x1b" not in row(letter)
    assert json.dumps(facts(letter))
    assert len(whole(letter).splitlines()) == 1
    assert await letters.purge(letter)


async def test_large_letters_are_read_a_few_at_a_time(
    probe: RedisProbe, letters: DeadLetters
) -> None:
    sizes = [3 * MiB, 3 * MiB, 8 * MiB, 1, 2]
    for size in sizes:
        await probe.client.execute("LPUSH", DEAD, b"x" * size)
    store = DeadLetterStore(probe.client, DEAD)
    pages = [len(await store.page(skip)) for skip in (0, 2, 3, 5)]
    assert pages == [2, 1, 2, 0]
    assert [len(letter.raw) async for letter in letters.each()] == sizes
