"""A replica holds one suspect at a time, and one that merely waits makes room for other queues'."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from async_processor.dispatch.suspects import PATIENCE, REST, Suspects, is_suspect
from async_processor.settlement.held import Held, Interruption, Phase
from async_processor.testing.messages import message
from async_processor.transport.base import SUSPECT_AFTER, Delivery
from async_processor.wire.envelope import read

BODY = message("r", deadline=2e9)


class Gauges:
    def moved(self, before: Phase | None, after: Phase | None) -> None: ...


def held(queue_name: str, phase: Phase = Phase.PARKED, *, claimed_at: float = 0.0) -> Held:
    delivery = Delivery(
        queue_name=queue_name, token="t", body=BODY, score=0.0, deliveries=SUSPECT_AFTER,
        claimed_at=claimed_at, message=read(BODY),
    )  # fmt: skip
    assert is_suspect(delivery)
    found = Held(delivery, Gauges(), claimed_at=claimed_at)
    found.enter(phase)
    return found


def taken_by(queue_name: str, phase: Phase = Phase.PARKED) -> tuple[Suspects, Held]:
    suspects, holder = Suspects(), held(queue_name, phase)
    assert suspects.take(queue_name, 0.0)
    suspects.hold(holder)
    return suspects, holder


def test_there_is_room_for_one() -> None:
    suspects = Suspects()
    assert [suspects.take(queue, 0.0) for queue in ("a", "b", "a")] == [True, False, False]
    suspects.leave()
    assert suspects.take("b", 0.0)


def told(holder: Held) -> Interruption | None:
    return holder.interruption


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.PARKED])
def test_who_merely_waits_leaves_when_another_queue_asks(phase: Phase) -> None:
    suspects, holder = taken_by("a", phase)
    assert not suspects.take("b", PATIENCE - 0.1)
    assert told(holder) is None, "not yet"
    assert not suspects.take("a", PATIENCE)
    assert told(holder) is None, "its own queue gains nothing by it"
    assert not suspects.take("b", PATIENCE)
    assert told(holder) is Interruption.YIELDED
    assert not suspects.take("b", PATIENCE), "there is never a second one"


@pytest.mark.parametrize("phase", [Phase.IN_FLIGHT, Phase.SETTLING])
def test_who_runs_is_left_alone(phase: Phase) -> None:
    suspects, holder = taken_by("a", phase)
    assert not suspects.take("b", 100 * PATIENCE)
    assert told(holder) is None


def test_who_made_room_comes_after_the_others() -> None:
    def yielded() -> Suspects:
        suspects, _ = taken_by("a")
        suspects.take("b", PATIENCE)
        suspects.leave()
        return suspects

    def takes(*queues: str, at: float) -> Sequence[bool]:
        suspects = yielded()
        return [suspects.take(queue, at) for queue in queues]

    assert takes("a", "b", at=PATIENCE + REST / 2) == [False, True]
    assert takes("a", at=PATIENCE + REST) == [True], "nobody wanted it"
    suspects = yielded()
    assert suspects.take("b", PATIENCE)
    suspects.leave()
    assert suspects.take("a", PATIENCE), "the other has had its turn"
