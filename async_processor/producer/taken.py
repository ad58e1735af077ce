"""A result in a reader's keeping."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from async_processor.errors import AsyncProcessorError
from async_processor.wire import result
from async_processor.wire.result import Result


class UnreadableResult(AsyncProcessorError):
    """What lies on the result queue is no result; `Taken.body` holds it as it came."""


class Taken:
    """A result that was taken and not yet acknowledged: until then the broker keeps it too.

    If its reader dies before it acknowledges, the result can be read again.
    """

    def __init__(
        self, body: bytes, acknowledge: Callable[[], Awaitable[None]], *, number: bytes = b""
    ) -> None:
        self.body = body
        self.number = number
        self._acknowledge = acknowledge

    @property
    def result(self) -> Result:
        """The result; raises UnreadableResult when the body is none."""
        try:
            return result.decode(self.body)
        except msgspec.MsgspecError as error:
            raise UnreadableResult(f"this is no result: {error}") from None

    async def ack(self) -> None:
        """Say that the result has been dealt with and need not be kept. Repeating it is harmless.

        Where this reader was silent for longer than its lease, the result has been given to
        others, and acknowledging it changes nothing.

        Raises:
            BrokerUnavailable: the broker has been away for too long; try again.
        """
        await self._acknowledge()
