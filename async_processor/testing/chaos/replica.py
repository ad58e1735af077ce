"""One daemon of a trial, with a network of its own to the broker and to the inference server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self

from async_processor.testing.chaos.front import REPLICA_HEADER
from async_processor.testing.daemons import DaemonFailed, DaemonProcess
from async_processor.testing.ill_fated import MODULE
from async_processor.testing.proxy import BadNetwork, bad_network

_OUR_DOING: Final = (0, -signal.SIGKILL, -signal.SIGTERM)
"""Exit codes; before Python runs SIGTERM ends a process like SIGKILL."""

Configure = Callable[[int, int], Mapping[str, Any]]
"""The settings of a daemon, by the ports of its broker and of its inference server."""


class Replica:
    """A place for a process that dies and comes back. `busy` is held while a fault is upon it."""

    def __init__(self, name: str, folder: Path, *, broker_port: int, front_port: int) -> None:
        self.name = name
        self.busy = asyncio.Lock()
        self._folder = folder / name
        self._ports = (broker_port, front_port)
        self._stack = AsyncExitStack()
        self.broker: BadNetwork
        self.inference: BadNetwork
        self.daemon: DaemonProcess

    async def open(self, configure: Configure) -> Self:
        """Build the networks and start the daemon."""
        broker_port, front_port = self._ports
        self.broker = await self._stack.enter_async_context(bad_network(broker_port))
        self.inference = await self._stack.enter_async_context(bad_network(front_port))
        settings = dict(configure(self.broker.port, self.inference.port))
        settings["inference"] = {
            **settings.get("inference", {}),
            "headers": {REPLICA_HEADER: self.name},
        }
        self.daemon = DaemonProcess(settings, self._folder)
        self._stack.push_async_exit(self.daemon)
        await self.start()
        return self

    async def close(self) -> None:
        """Kill the daemon and break its networks."""
        await self._stack.aclose()

    async def start(self, **fate: str) -> None:
        """Start the process and wait until it is ready; `fate` is told in `ill_fated`.

        Raises DaemonFailed when it ends instead.
        """
        await self.daemon.start(module=MODULE, environment=fate)

    async def spawn(self, **fate: str) -> None:
        """Start the process and do not wait."""
        await self.daemon.spawn(module=MODULE, environment=fate)

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        await self.daemon.kill()

    async def revive(self) -> str:
        """Start the process again if it has ended; returns a complaint when it ended by itself."""
        if self.daemon.running:
            return ""
        code = self.daemon.process.returncode
        try:
            await self.start()
        except DaemonFailed as error:
            return f"{self.name} did not start: {error}"
        return "" if code in _OUR_DOING else f"{self.name} ended by itself with {code}"
