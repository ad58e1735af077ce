"""What may go wrong at a pod, switched on and off while it runs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import Enum, auto
from typing import Annotated, Any

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class Fault(Enum):
    """What befalls one call. The first four come instead of an answer, the others spoil it."""

    HANG = auto()
    RESET = auto()
    ERROR = auto()
    THROTTLE = auto()
    RESET_MID_ANSWER = auto()
    TRICKLE = auto()
    WRONG_LENGTH = auto()
    NOT_JSON = auto()
    BOMB = auto()


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The switches. Most are the share of calls that a fault befalls, from 0 (off) to 1 (all).

    * `hang`: never answers; `reset`: the connection is reset before the answer;
      `reset_mid_answer`: half-way through it.
    * `error`: answers `error_status`; `throttle`: answers 429 with `Retry-After`, a number of
      seconds (`retry_after`; None sends none).
    * `trickle`: one byte every `trickle_seconds`; `wrong_length`: `Content-Length` promises more
      than comes; `not_json`: a page of HTML with status 200; `bomb`: half a
      megabyte of gzip that unpacks to 128 MB.
    * `added_latency`: seconds before every answer; `answer_bytes`: the least size of an answer
      that is not a stream.
    * `not_ready`: `/health` answers 503, and the router sends nothing here.
    """

    hang: Share = 0.0
    reset: Share = 0.0
    reset_mid_answer: Share = 0.0
    error: Share = 0.0
    error_status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 500
    throttle: Share = 0.0
    retry_after: Amount | None = 1.0
    trickle: Share = 0.0
    trickle_seconds: Amount = 1.0
    wrong_length: Share = 0.0
    not_json: Share = 0.0
    bomb: Share = 0.0
    added_latency: Amount = 0.0
    answer_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    not_ready: bool = False


NO_FAULTS = Faults()


class FaultSwitch:
    """One pod's faults now. Written by whoever tests, read by the pod at each call."""

    def __init__(self, faults: Faults = NO_FAULTS, *, seed: int | None = None) -> None:
        self.now = faults
        self._random = random.Random(seed)

    def set(self, **switches: Any) -> None:
        """Turn these switches, leaving the others; raises ValueError for an unknown or bad one."""
        self.update(switches)

    def update(self, switches: Mapping[str, Any]) -> None:
        """`set` for switches that came as a mapping."""
        merged = msgspec.structs.asdict(self.now) | dict(switches)
        self.now = msgspec.convert(merged, Faults)

    def clear(self) -> None:
        """All off."""
        self.now = NO_FAULTS

    def draw(self) -> Fault | None:
        """Which fault befalls this call; the first that hits, in the order of `Fault`."""
        now = self.now
        if now is NO_FAULTS:
            return None
        shares = (
            (Fault.HANG, now.hang),
            (Fault.RESET, now.reset),
            (Fault.ERROR, now.error),
            (Fault.THROTTLE, now.throttle),
            (Fault.RESET_MID_ANSWER, now.reset_mid_answer),
            (Fault.TRICKLE, now.trickle),
            (Fault.WRONG_LENGTH, now.wrong_length),
            (Fault.NOT_JSON, now.not_json),
            (Fault.BOMB, now.bomb),
        )
        return next((fault for fault, share in shares if self._hits(share)), None)

    def _hits(self, share: float) -> bool:
        return share > 0 and self._random.random() < share


class FaultPanel:
    """The same switches for several pods at once."""

    def __init__(self, switches: list[FaultSwitch]) -> None:
        self._switches = switches

    def set(self, **switches: Any) -> None:
        """Turn these switches at every pod; raises ValueError for an unknown or bad one."""
        self.update(switches)

    def update(self, switches: Mapping[str, Any]) -> None:
        """`set` for switches that came as a mapping."""
        for switch in self._switches:
            switch.update(switches)

    def clear(self) -> None:
        """All off, at every pod."""
        for switch in self._switches:
            switch.clear()

    def as_list(self) -> list[Faults]:
        """What is switched on, pod by pod."""
        return [switch.now for switch in self._switches]
