"""A number that somebody writes into a Redis key."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.redis_io.shared import SharedClient
from async_processor.sensors.base import BadAnswer, Measurement
from async_processor.sensors.figures import finite


@dataclass(frozen=True)
class RedisValueSource:
    """One key, of which `absent` is the value when there is none.

    A Redis that does not answer is as bad as one that answers nonsense: whoever writes the key may
    have closed it by now.
    """

    client: SharedClient
    key: str
    absent: float

    @property
    def name(self) -> str:
        """The key and where it stands."""
        return f"{self.key} at {self.client.place}"

    async def read(self, timeout: float) -> Measurement:
        """Read once; raises as every `Source` does, but never NoAnswer."""
        text = await self._text(timeout)
        if text is None:
            return Measurement(value=self.absent, note=f"the key {self.key!r} is not set")
        value = finite(text.decode(errors="replace"))
        if value is None:
            raise BadAnswer(f"the key {self.key!r} holds no finite decimal number")
        return Measurement(value=value)

    async def _text(self, timeout: float) -> bytes | None:
        try:
            async with asyncio.timeout(timeout):
                client = await self.client.get()
                text: bytes | None = await client.execute("GET", self.key)
        except TimeoutError as error:
            raise BadAnswer(f"no answer within {timeout:g} s") from error
        except (BrokerUnavailable, BrokerRefused) as error:
            raise BadAnswer(str(error)) from error
        return text
