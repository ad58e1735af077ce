"""The parts of the Pub/Sub transport that need no service: marks, batches, the hand, the setup."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence

import pytest
from google.api_core import exceptions as google_errors
from hypothesis import given
from hypothesis import strategies as st

from async_processor.clock import SystemClock
from async_processor.errors import BrokerRefused, BrokerUnavailable, ConfigurationError
from async_processor.google_io.batches import Batches
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.errors import Missing, border
from async_processor.google_io.publisher import Publisher
from async_processor.google_io.values import LONGEST_LEASE, Message, Received, Verdict
from async_processor.producer import pubsub_inbox
from async_processor.producer.patience import Patience
from async_processor.testing.eventually import until
from async_processor.transport.base import SUSPECT_AFTER
from async_processor.transport.google_pubsub import marks
from async_processor.transport.google_pubsub.hand import HOLD, SUSPECT_PAUSE, Hand
from async_processor.transport.google_pubsub.leases import FORGIVEN, Lease, Leases
from async_processor.transport.google_pubsub.marks import Marks
from async_processor.transport.google_pubsub.results import Results
from async_processor.transport.google_pubsub.settling import Settling
from async_processor.transport.google_pubsub.setup import steps
from async_processor.transport.google_pubsub.subscription import Subscription
from async_processor.transport.settings import PubSubSettings
from async_processor.wire.envelope import Envelope
from async_processor.wire.result import ErrorCode, Result

TEXT = st.text(max_size=20)


def test_grpc_writes_no_lines_of_its_own_into_the_log_unless_it_is_asked_to() -> None:
    assert os.environ["GRPC_VERBOSITY"] == "ERROR"


@given(
    st.dictionaries(TEXT, TEXT, max_size=5),
    st.floats(0, 5e9),
    st.integers(0, 100),
)
def test_marks_come_back_and_leave_the_senders_attributes_alone(
    attributes: dict[str, str], due_at: float, deliveries: int
) -> None:
    wanted = Marks(subscription="projects/p/subscriptions/s", due_at=due_at, deliveries=deliveries)
    marked = marks.marked(attributes, wanted)
    assert marks.read(marked) == wanted
    assert marks.senders(marked) == marks.senders(attributes)
    assert marks.marked(marked, wanted) == marked


@given(st.dictionaries(st.sampled_from(["due", "deliveries", "subscription"]), TEXT))
def test_whatever_stands_in_a_mark_is_read(values: dict[str, str]) -> None:
    read = marks.read({f"async_processor_{name}": value for name, value in values.items()})
    assert read.deliveries >= 0
    assert read.is_copy == bool(values.get("subscription"))


def test_attributes_are_metadata_and_the_messages_own_wins() -> None:
    body = {"id": "r", "deadline": 1, "payload": {}, "metadata": {"a": "own"}}
    attributes = marks.marked({"a": "sender's", "b": "c"}, Marks(subscription="s"))
    message = marks.examine(json.dumps(body).encode(), attributes)
    assert isinstance(message, Envelope)
    assert message.request.metadata == {"a": "own", "b": "c"}


def test_a_result_says_how_it_ended_and_carries_its_route() -> None:
    failed = Result(
        id="ü" * 600,
        payload="{}",
        error_code=ErrorCode.DEADLINE_EXCEEDED,
        metadata={"result_route": "mine", "userid": "x"},
    )
    attributes = marks.of_result(failed)
    assert attributes["status"] == "DEADLINE_EXCEEDED"
    assert attributes["result_route"] == "mine"
    assert len(attributes["id"].encode()) <= marks.LONGEST_VALUE
    assert set(attributes) == {"id", "status", "result_route"}


async def test_calls_that_come_while_one_is_under_way_go_together() -> None:
    sent: list[Sequence[int]] = []
    go_on = asyncio.Event()

    async def send(items: Sequence[int]) -> list[int]:
        sent.append(list(items))
        await go_on.wait()
        return [item * 2 for item in items]

    batches = Batches(send, items=3, max_bytes=100, size=lambda item: item)
    calls = [asyncio.create_task(batches(item)) for item in (1, 2, 3, 4, 5, 90, 20)]
    await until(lambda: bool(sent))
    go_on.set()
    assert await asyncio.gather(*calls) == [2, 4, 6, 8, 10, 180, 40]
    assert sent == [[1, 2, 3], [4, 5, 90], [20]]


async def test_a_failed_batch_fails_for_those_in_it_alone() -> None:
    async def send(items: Sequence[int]) -> list[int]:
        if 1 in items:
            raise BrokerUnavailable
        return list(items)

    batches = Batches(send, items=1)
    first, second = await asyncio.gather(batches(1), batches(2), return_exceptions=True)
    assert isinstance(first, BrokerUnavailable)
    assert second == 2


ERRORS = [
    error
    for error in vars(google_errors).values()
    if isinstance(error, type) and issubclass(error, google_errors.GoogleAPICallError)
]


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_of_the_libraries_is_one_of_ours(
    error: type[google_errors.GoogleAPICallError],
) -> None:
    ours = (BrokerUnavailable, BrokerRefused)
    with pytest.raises(ours, match="publish: it says so"), border("publish"):
        raise error("it says so")


class Topic(PubSubClient):
    """Refuses some messages, and with them every batch they are in."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), emulator="nowhere")
        self.kept: list[bytes] = []
        self.away = False

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        if topic == "missing":
            raise Missing
        if any(one.data == b"bad" for one in messages):
            raise BrokerRefused("too large")
        if self.away:
            raise BrokerUnavailable
        self.away = messages[0].data == b"last"
        self.kept += [one.data for one in messages]


async def test_one_refused_message_does_not_take_others_down() -> None:
    topic = Topic()
    publisher = Publisher(topic)
    bodies = [b"a", b"bad", b"b", b"c"]
    told = await asyncio.gather(
        *(publisher.publish("topic", Message(data=body)) for body in bodies),
        return_exceptions=True,
    )
    assert sorted(topic.kept) == [b"a", b"b", b"c"]
    assert [isinstance(each, BrokerRefused) for each in told] == [False, True, False, False]
    with pytest.raises(Missing):
        await publisher.publish("missing", Message(data=b""))


async def test_an_outage_among_messages_that_go_alone_repeats_none_of_those_kept() -> None:
    topic = Topic()
    publisher = Publisher(topic)
    bodies = [b"first", b"bad", b"a", b"last", b"late", b"bad"]
    told = await asyncio.gather(
        *(publisher.publish("topic", Message(data=body)) for body in bodies),
        return_exceptions=True,
    )
    assert topic.kept == [b"first", b"a", b"last"]
    kinds = [type(each) for each in told]
    none = type(None)
    assert kinds == [none, BrokerRefused, none, none, BrokerUnavailable, BrokerRefused]


def lease(ack_id: str, *, attempt: int = 1, deliveries: int = 0, due_at: float = 0.0) -> Lease:
    own = Marks(subscription="s", deliveries=deliveries, due_at=due_at)
    attributes = marks.marked({}, own)
    received = Received(
        ack_id=ack_id,
        data=b"{}",
        attributes=attributes,
        message_id=ack_id,
        published_at=0,
        attempt=attempt,
    )
    client = PubSubClient(SystemClock(), emulator="nowhere")
    source = Subscription(client, "s", "projects/p/subscriptions/s", "projects/p/topics/t")
    return Lease(received, source)


def test_only_lost_leases_count_as_deliveries() -> None:
    assert lease("without a policy", attempt=0).deliveries == 0
    assert lease("new", attempt=1).deliveries == 0
    assert lease("given back once", attempt=1 + FORGIVEN).deliveries == 0
    assert lease("lost twice after that", attempt=3 + FORGIVEN).deliveries == 2
    assert lease("a copy of one that was lost", attempt=1, deliveries=2).deliveries == 2


def test_a_mark_puts_off_what_has_no_deadline_too_but_not_for_long() -> None:
    assert lease("unreadable, published at 0", due_at=60.0).due_at == 60.0
    assert lease("marked by somebody else", due_at=1e12).due_at == LONGEST_LEASE


class Modified(PubSubClient):
    """Notes what is asked of leases."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), emulator="nowhere")
        self.seconds: dict[str, int] = {}

    async def modify(
        self, subscription: str, ack_ids: Sequence[str], seconds: int
    ) -> list[Verdict]:
        self.seconds |= dict.fromkeys(ack_ids, seconds)
        return [Verdict.DONE] * len(ack_ids)


@pytest.mark.parametrize("renewed_first", [True, False])
async def test_renewing_a_lease_does_not_put_off_what_is_on_its_way_back(
    renewed_first: bool,
) -> None:
    client = Modified()
    held = lease("a")
    held.subscription = Subscription(client, "s", "projects/p/subscriptions/s", "")
    leases = Leases(SystemClock(), 60)
    publisher = Publisher(client)
    results = Results(publisher, "p", default="results", dead_letters="")
    settling = Settling(leases, publisher, results, SystemClock())
    calls = [leases.extend([held]), settling.give_back(held, 3)]
    await asyncio.gather(*(calls if renewed_first else calls[::-1]))
    assert client.seconds == {"a": 3}


class Source:
    """What a hand pulls from, and what it gives back."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[list[Lease]] = asyncio.Queue()
        self.asked: list[int] = []
        self.returned: list[tuple[str, float]] = []

    async def pull(self, limit: int) -> list[Lease]:
        self.asked.append(limit)
        return await self.waiting.get()

    def give_back(self, leases: Sequence[Lease], delay: float) -> None:
        self.returned += [(one.received.ack_id, delay) for one in leases]


async def test_an_idle_hand_asks_for_one_and_then_for_as_many_as_are_free() -> None:
    source = Source()
    hand = Hand(source.pull, source.give_back)
    assert not await hand.wait(0.01)
    assert not await hand.wait(0.01)
    assert source.asked == [1], "the pull goes on, whoever waits"
    source.waiting.put_nowait([lease("a")])
    assert await hand.wait(5)
    assert [one.received.ack_id for one in await hand.take(8, suspects=False)] == ["a"]
    source.waiting.put_nowait([lease("b"), lease("c")])
    assert await hand.wait(5), "there is probably more"
    assert len(await hand.take(8, suspects=False)) == 2
    assert source.asked == [1, 8]
    assert not await hand.take(8, suspects=False)
    assert not await hand.wait(0.01)
    await hand.close()


async def test_what_nobody_takes_is_given_back_and_asked_for_no_more() -> None:
    source = Source()
    hand = Hand(source.pull, source.give_back)
    source.waiting.put_nowait([lease("a")])
    assert await hand.wait(5)
    await until(lambda: source.returned == [("a", 0)])
    assert await hand.wait(5), "it is still there, for whoever is free"
    assert source.asked == [1]
    await hand.close()


async def test_a_pull_that_outlasts_the_hold_of_the_last_one_loses_nothing() -> None:
    source = Source()
    hand = Hand(source.pull, source.give_back)
    source.waiting.put_nowait([lease("a")])
    assert len(await hand.take(8, suspects=False)) == 1
    assert not await hand.take(8, suspects=False), "the next pull is under way"
    await asyncio.sleep(HOLD)  # timers run in their order: that of the first pull before this one
    source.waiting.put_nowait([lease("b")])
    assert await hand.wait(5)
    assert [one.received.ack_id for one in await hand.take(8, suspects=False)] == ["b"]
    await hand.close()


async def test_one_suspect_at_a_time_and_the_others_later() -> None:
    source = Source()
    hand = Hand(source.pull, source.give_back)
    suspects = [lease(f"s-{number}", deliveries=SUSPECT_AFTER) for number in range(3)]
    source.waiting.put_nowait([suspects[0], lease("calm"), *suspects[1:]])
    taken = await hand.take(8, suspects=True)
    assert [one.received.ack_id for one in taken] == ["s-0", "calm"]
    assert source.returned == [("s-1", SUSPECT_PAUSE), ("s-2", SUSPECT_PAUSE)]
    await hand.close()


async def test_a_pull_that_fails_is_told_to_who_waits_and_tried_again() -> None:
    asked = 0

    async def pull(limit: int) -> list[Lease]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise BrokerUnavailable
        return [lease("a")]

    hand = Hand(pull, lambda leases, delay: None)
    with pytest.raises(BrokerUnavailable):
        await hand.wait(5)
    assert await hand.wait(5)
    await hand.close()


class Quiet(PubSubClient):
    """A service whose pulls end empty, and which remembers those that were cut short."""

    cut = 0

    async def pull(self, subscription: str, limit: int, patience: float = 60.0) -> list[Received]:
        try:
            await asyncio.sleep(patience)
        except asyncio.CancelledError:
            self.cut += 1
            raise
        return []


async def test_reading_to_the_end_cuts_no_pull_that_could_lease_a_result_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pubsub_inbox, "EMPTY_AFTER", 0.05)
    client = Quiet(SystemClock())
    subscribed = pubsub_inbox.Subscribed(client, "results", Patience(1.0))
    async with pubsub_inbox.PubSubResults(
        subscribed, follow=False, closed=lambda reader: None
    ) as results:
        assert [one async for one in results] == []
    assert not client.cut


def settings() -> PubSubSettings:
    return PubSubSettings(project_id="my-project", result_topic_id="results", max_deliveries=7)


def test_setup_makes_topics_before_their_subscriptions_and_everything_once() -> None:
    planned = steps(settings(), {"requests-sub": "", "more": "requests"})
    made: set[str] = set()
    for step in planned:
        if step.subscription is None:
            made.add(step.topic)
        else:
            assert step.subscription.topic in made
    assert len({str(step) for step in planned}) == len(planned)
    (requests,) = [
        step.subscription
        for step in planned
        if step.subscription and step.subscription.name.endswith("/requests-sub")
    ]
    assert requests.topic == "projects/my-project/topics/requests"
    assert requests.max_delivery_attempts == 12
    assert requests.exactly_once


def test_setup_asks_for_a_topic_that_cannot_be_told() -> None:
    with pytest.raises(ConfigurationError, match=r"topics\[0\]\.topic_id: is required"):
        steps(settings(), {"jobs": ""})
