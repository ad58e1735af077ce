"""Producers, readers and commands on Pub/Sub: the same calls and exit codes as on Redis."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from async_processor.clock import SystemClock
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.values import Message
from async_processor.producer import DeadlinePassed, InvalidSubmission, NoMailbox, Submission
from async_processor.producer.errors import NotSupported
from async_processor.producer.pubsub import PubSubProducer
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.eventually import until
from async_processor.testing.pubsub_fake import PubSubFake
from async_processor.testing.pubsub_scene import PROJECT, REQUESTS, RESULTS, PubSubScene
from async_processor.wire import envelope
from async_processor.wire.result import Result, encode


@pytest.fixture
async def fake() -> AsyncIterator[PubSubFake]:
    async with PubSubFake(long_poll=0.5) as fake:
        scene = PubSubScene(fake.host)
        await scene.open()
        await scene.close()
        yield fake


def producer(fake: PubSubFake, **options: Any) -> PubSubProducer:
    client = PubSubClient(SystemClock(), emulator=fake.host)
    return PubSubProducer(PROJECT, topic="requests", client=client, **options)


def submission(request_id: str, deadline: str = "1h") -> Submission:
    return Submission(id=request_id, payload={"prompt": "hi"}, deadline=deadline)


async def answer_all(fake: PubSubFake) -> None:
    """What a daemon would do, for every request so far."""
    client = PubSubClient(SystemClock(), emulator=fake.host)
    await client.open()
    for one in fake.broker.published(REQUESTS):
        request = envelope.read(one.data).request
        body = encode(Result(id=request.id, status_code=200, payload="{}"))
        attributes = {"id": request.id, **one.attributes}
        await client.publish(RESULTS, [Message(data=body, attributes=attributes)])
    await client.close()


async def test_a_request_is_bare_and_its_result_comes_to_its_producer_alone(
    fake: PubSubFake,
) -> None:
    async with (
        producer(fake, result_topic="results") as mine,
        producer(fake, result_topic="results") as other,
    ):
        handle = await mine.submit(submission("r-1"))
        (published,) = fake.broker.published(REQUESTS)
        message = envelope.read(published.data)
        assert message.bare
        assert (message.request.id, message.request.deadline) == ("r-1", handle.deadline)
        await other.submit(submission("r-2"))
        await answer_all(fake)
        assert (await mine.result(handle, 20)).id == "r-1"
        with pytest.raises(TimeoutError):
            await other.result(handle, 0.2)
    assert len(fake.broker.subscriptions) == 3, "a producer's own subscription ends with it"


async def test_results_wait_for_those_who_ask_later(fake: PubSubFake) -> None:
    async with producer(fake, result_topic="results") as mine:
        handles = await mine.submit_many(
            [submission(f"r-{number}") for number in range(50)], mailbox=True
        )
        await answer_all(fake)
        for handle in reversed(handles):
            assert (await mine.result(handle, 20)).id == handle.id


async def test_producers_that_share_a_subscription_leave_each_other_their_results(
    fake: PubSubFake,
) -> None:
    async with (
        producer(fake, result_subscription="results-sub") as one,
        producer(fake, result_subscription="results-sub") as other,
    ):
        mine = [
            (each, await each.submit(submission(f"r-{n}")))
            for n, each in enumerate((one, other) * 3)
        ]
        waiting = [asyncio.create_task(each.result(handle, 60)) for each, handle in mine]
        await answer_all(fake)
        found = await asyncio.gather(*waiting)
    assert [each.id for each in found] == [f"r-{number}" for number in range(6)]


async def test_a_subscription_of_its_own_that_was_made_by_a_lost_try_is_used(
    fake: PubSubFake,
) -> None:
    fake.fail("CreateSubscription", after=True)
    async with producer(fake, result_topic="results") as mine:
        handle = await mine.submit(submission("r-1"))
        await answer_all(fake)
        assert (await mine.result(handle, 20)).id == "r-1"


async def test_who_gives_up_waiting_takes_the_result_from_nobody(fake: PubSubFake) -> None:
    async with producer(fake, result_topic="results") as mine:
        handle = await mine.submit(submission("r-1"))
        patient = asyncio.create_task(mine.result(handle, 60))
        with pytest.raises(TimeoutError):
            await mine.result(handle, 0.2)
        await answer_all(fake)
        assert (await patient).id == "r-1"


async def test_a_named_subscription_is_read_by_any_process(fake: PubSubFake) -> None:
    async with producer(fake) as mine:
        await mine.submit_many([submission(f"r-{number}") for number in range(5)])
        with pytest.raises(NoMailbox):
            mine.results()
    await answer_all(fake)
    async with producer(fake, result_subscription="results-sub") as reader:
        async with reader.results(follow=False) as results:
            first = await anext(results)  # not acknowledged: it comes again
        seen: set[str] = set()
        async with reader.results() as results:
            while len(seen) < 5:
                taken = await anext(results)
                await taken.ack()
                seen.add(taken.result.id)
        assert first.result.id in seen


async def test_what_would_never_run_is_not_published(fake: PubSubFake) -> None:
    async with producer(fake) as mine:
        with pytest.raises(DeadlinePassed):
            await mine.submit(submission("r-1", deadline=str(time.time() - 5)), mailbox=False)
        with pytest.raises(InvalidSubmission, match="payload"):
            await mine.submit(Submission(payload="[]", deadline="1h"), mailbox=False)
        with pytest.raises(NotSupported, match="cannot cancel"):
            await mine.cancel("r-1")
    assert not fake.broker.published(REQUESTS)


async def test_submitting_waits_for_a_service_that_is_away(fake: PubSubFake) -> None:
    async with producer(fake) as mine:
        fake.fail("Publish", times=3)
        await mine.submit(submission("r-1"), mailbox=False)
    assert len(fake.broker.published(REQUESTS)) == 1


class Commands:
    """`async-processor` in processes of their own, with a configuration for the fake."""

    def __init__(self, fake: PubSubFake, config: Path) -> None:
        self._environ = {**os.environ, "PUBSUB_EMULATOR_HOST": fake.host}
        self._config = config

    async def __call__(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "async_processor", *arguments, "--config", str(self._config)),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self._environ,
        )
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
        return process.returncode or 0, out.decode(), err.decode()


def settings(gateway: str = "http://gateway", **transport: object) -> dict[str, object]:
    return {
        "transport": {
            "type": "gcp-pubsub",
            "project_id": PROJECT,
            "result_topic_id": "results",
            "topics": [{"subscriber_id": "requests-sub", "igw_base_url": gateway}],
            **transport,
        }
    }


@pytest.fixture
def command(fake: PubSubFake, tmp_path: Path) -> Commands:
    config = tmp_path / "pubsub.yaml"
    config.write_text(yaml.safe_dump(settings()))
    return Commands(fake, config)


async def test_setup_says_what_it_would_do_and_does_it_once(tmp_path: Path) -> None:
    config = tmp_path / "pubsub.yaml"
    config.write_text(yaml.safe_dump(settings()))
    async with PubSubFake() as empty:
        command = Commands(empty, config)
        code, planned, _ = await command("pubsub", "setup", "--dry-run")
        assert code == 0
        assert not empty.broker.topics
        code, done, _ = await command("pubsub", "setup")
        assert code == 0
        assert done.replace("created", "would create") == planned
        made = empty.broker.subscriptions[f"projects/{PROJECT}/subscriptions/requests-sub"].settings
        assert made.enable_exactly_once_delivery
        assert made.ack_deadline_seconds == 60
        assert made.dead_letter_policy.max_delivery_attempts == 10
        made.ack_deadline_seconds = 10
        code, again, _ = await command("pubsub", "setup")
        assert code == 0
        assert "created" not in again
        assert "ack deadline is 10, recommended 60" in again


async def test_the_commands_that_cannot_work_say_what_to_use(command: Commands) -> None:
    for arguments, words in (
        (("cancel", "r-1"), "Pub/Sub cannot cancel"),
        (("dead-letter", "list"), "gcloud pubsub"),
        (("status", "--daemon", "http://127.0.0.1:9"), "no daemon answers"),
        (("results",), "--result-queue: is required"),
    ):
        code, _, err = await command(*arguments)
        assert code in (1, 2)
        assert words in err
        assert len(err.splitlines()) == 1


async def test_submit_waits_for_the_results_of_a_running_daemon(
    fake: PubSubFake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", fake.host)
    async with SimulatedPool(latency=0) as pool:
        daemon = DaemonProcess(settings(pool.url), tmp_path / "daemon")
        command = Commands(fake, daemon.config_file)
        async with daemon:
            lines = "".join(json.dumps({"prompt": f"p {n}"}) + "\n" for n in range(20))
            code, out, err = await command("submit", "--wait", stdin=lines)
            assert code == 0, err
            assert len(out.splitlines()) == 20
            code, out, err = await command("submit", stdin=lines)
            assert code == 0, err
            code, out, err = await command(
                "results", "--result-queue", "results-sub", "--count", "40"
            )
            assert code == 0, err
            assert len(out.splitlines()) == 40
            code, out, err = await command("status")
            assert code == 0, err
            assert "requests-sub: backlog unknown" in out
            await until(lambda: not pool.pods[0].load.running)
            assert await daemon.terminate() == 0
        assert '"level": "error"' not in daemon.log()
