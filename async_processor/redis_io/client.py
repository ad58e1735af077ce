"""What the rest of the processor sees of Redis: commands in, answers or our own errors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from async_processor.redis_io.outage import Outage

Argument = str | bytes | int | float
Command = Sequence[Argument]


class Line(Protocol):
    """A connection of one's own, for what changes a connection's state."""

    async def ask(self, *command: Argument) -> Any:
        """Send one command and return its answer. Raises as `RedisClient.execute`."""
        ...

    async def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send several commands at once. Raises as `RedisClient.execute`."""
        ...

    async def send(self, *command: Argument) -> None:
        """Send one command; its answer comes by `receive`."""
        ...

    async def receive(self, timeout: float) -> Any:
        """The next answer or message; raises AnswerLost when none comes for `timeout` seconds."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


class RedisClient(Protocol):
    """One Redis, wherever it runs: a server, one behind Sentinel, or a cluster.

    Raises:
        BrokerUnavailable: it cannot be reached or cannot serve now (`AnswerLost` if a command may
            have been executed all the same).
        BrokerRefused: it answered with an error (`AccessDenied`, `ScriptMissing`).
    """

    @property
    def outage(self) -> Outage:
        """When the server was last lost and found."""
        ...

    @property
    def clustered(self) -> bool:
        """Whether keys of one command must share a slot."""
        ...

    async def execute(self, *command: Argument, wait: float = 0) -> Any:
        """Send one command; `wait` is how many seconds the command itself blocks at most."""
        ...

    async def pipeline(self, commands: Sequence[Command], wait: float = 0) -> list[Any]:
        """Send several commands at once; raises the first error among the answers.

        `wait` is how many seconds they block at most, together.
        """
        ...

    async def line(self) -> Line:
        """A connection of one's own; on a cluster there is none (BrokerRefused)."""
        ...

    async def close(self) -> None:
        """End all connections."""
        ...
