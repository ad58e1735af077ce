"""What a quota gate needs of its count, whatever is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from async_processor.admission.base import Ticket
from async_processor.listeners import Leave
from async_processor.wire.envelope import Envelope


class Full(msgspec.Struct, frozen=True, kw_only=True):
    """There is no room; `look_after` seconds there may be some, if nobody says so before."""

    look_after: float


class Book(Protocol):
    """Counts what tenants use; shared by all gates of this process with the same quota."""

    @property
    def available(self) -> bool:
        """Whether the count can be read."""
        ...

    @property
    def fault(self) -> str:
        """Why it cannot."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Stop, unless a gate listens that goes on."""
        ...

    async def take(self, tenant: str, limit: int, envelope: Envelope) -> Ticket | Full:
        """Count a request, if there is room. Raises BrokerUnavailable."""
        ...

    async def room(self, tenant: str, limit: int) -> int | Full:
        """How many more requests of a tenant there is room for. Raises BrokerUnavailable."""
        ...

    async def used(self, tenants: Sequence[str]) -> Sequence[int]:
        """How much each uses, by all replicas together. Raises BrokerUnavailable."""
        ...

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        """Call `wake` when the count can be read again."""
        ...

    def on_room(self, freed: Callable[[str], None]) -> Leave:
        """Call `freed` with a tenant that somebody waits for when this process has made room."""
        ...
