"""Where gates get their numbers: a `Sensor` holds the latest `Observation` of one `Source`.

A sensor reads in the background at its own interval, whatever the number of gates that look at
it; gates only ever see the latest observation, without waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from async_processor.errors import AsyncProcessorError
from async_processor.listeners import Leave

SHOWS_WITHIN: Final = 0.5
"""Seconds from a start here until the request is among a pod's running ones: the way there, the end
of the step that is under way, and the one that it joins."""


class NoAnswer(AsyncProcessorError):
    """The source did not answer; what it said last may still be used until it is too old."""


class BadAnswer(AsyncProcessorError):
    """The source answered and there is no usable number in it; what it said last is void."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What a source says.

    `capacity` is how many requests the value 1.0 stands for, where the source knows. `moment`
    tells two answers apart where the source dates them: an equal one is the same answer again.
    `lag` is for how many seconds before the question a request may have started without being in
    the value. `note` says in words what is wrong with a value that can be used nevertheless.
    """

    value: float
    capacity: float | None = None
    moment: float | None = None
    lag: float = 0.0
    note: str = ""


class Source(Protocol):
    """One place to read. Sources that read the same thing are equal, so that they can be shared."""

    @property
    def name(self) -> str:
        """What is read, for people; without secrets."""
        ...

    async def read(self, timeout: float) -> Measurement:
        """Read once, in at most `timeout` seconds; the value is finite.

        Raises:
            NoAnswer: nobody answered, or not in time.
            BadAnswer: the answer holds no usable value.
        """
        ...

    def __hash__(self) -> int: ...


class Reading(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One value and when it was taken: monotonic seconds, the moment the source was asked."""

    value: float
    taken_at: float
    capacity: float | None = None
    lag: float = 0.0
    note: str = ""

    @property
    def knows_until(self) -> float:
        """What started before then (monotonic seconds) is in the value."""
        return self.taken_at - self.lag


class Unreadable(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The source cannot be read, and why, in words; `noticed_at` is in monotonic seconds."""

    reason: str
    noticed_at: float


Observation = Reading | Unreadable


class Sensor(Protocol):
    """Observations of one source, one new object after each look at it.

    A source is unreadable when it answers nonsense, or when its last reading is older than it may
    be. It is read as long as somebody has subscribed.
    """

    def latest(self) -> Observation | None:
        """None until the first look is over."""
        ...

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        """Call `wake` after every new observation, until what is returned is called."""
        ...
