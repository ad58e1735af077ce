"""The broker in memory keeps keys and lists as long as it should, and cancels what is active."""

from __future__ import annotations

import pytest

from async_processor.testing.clock import ManualClock
from async_processor.transport.memory_broker import MemoryBroker
from async_processor.wire.names import active_key, cancel_key


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> MemoryBroker:
    return MemoryBroker(clock)


def _pass(clock: ManualClock, seconds: float) -> None:
    clock.synchronise(clock.now() + seconds)


def test_only_an_active_request_can_be_cancelled(broker: MemoryBroker) -> None:
    assert broker.cancel("r-1") is False
    assert broker.get_key(cancel_key("r-1")) is None
    broker.set_key(active_key("r-1"), b"t-1")
    assert broker.cancel("r-1") is True
    assert broker.get_key(cancel_key("r-1")) == b"t-1"


def test_a_request_is_active_until_its_deadline(broker: MemoryBroker, clock: ManualClock) -> None:
    broker.set_key(active_key("r-1"), b"t-1", expires_at=clock.now() + 10)
    _pass(clock, 9)
    assert broker.get_key(active_key("r-1")) == b"t-1"
    _pass(clock, 1)
    assert broker.get_key(active_key("r-1")) is None
    assert broker.cancel("r-1") is False


def test_a_cancel_is_remembered_for_a_week(broker: MemoryBroker, clock: ManualClock) -> None:
    broker.set_key(active_key("r-1"), b"t-1")
    broker.cancel("r-1")
    _pass(clock, 7 * 24 * 3600 - 1)
    assert broker.get_key(cancel_key("r-1")) == b"t-1"
    _pass(clock, 1)
    assert broker.get_key(cancel_key("r-1")) is None


def test_a_list_gives_the_oldest_first(broker: MemoryBroker) -> None:
    for item in (b"1", b"2", b"3"):
        broker.push("results", item)
    assert broker.items("results") == (b"1", b"2", b"3")
    assert [broker.pop("results") for _ in range(4)] == [b"1", b"2", b"3", None]


def test_a_list_expires_as_a_whole_and_starts_anew(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    broker.push("results", b"1", expires_after=10)
    broker.push("results", b"2")
    assert broker.lifetime("results") == 10
    _pass(clock, 10)
    assert broker.items("results") == ()
    assert broker.pop("results") is None
    broker.push("results", b"3")
    assert broker.lifetime("results") is None
    assert broker.items("results") == (b"3",)


def test_an_emptied_list_forgets_its_lifetime(broker: MemoryBroker) -> None:
    broker.push("results", b"1", expires_after=10)
    broker.pop("results")
    broker.push("results", b"2")
    assert broker.lifetime("results") is None


def test_an_identical_message_takes_over_the_score(broker: MemoryBroker) -> None:
    broker.submit("q", b"a", 5.0)
    broker.submit("q", b"b", 4.0)
    broker.submit("q", b"a", 3.0)
    queue = broker.queue("q")
    assert [(one.body, one.score) for one in queue.take(5, suspects=False)] == [
        (b"a", 3.0),
        (b"b", 4.0),
    ]
    assert queue.first(suspects=True) is None
    assert not queue.filled.is_set()
