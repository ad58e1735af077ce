"""What a failover to a replica that lags costs.

A master with a replica behind a network that stalls; daemons, producer and readers reach the
master by an address that moves to the replica when the master dies. What was submitted and settled
while the network stalled is what asynchronous replication can lose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from async_processor.fields import Confirm
from async_processor.producer import Producer, Submission
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.chaos.loss import (
    PATIENCE,
    Loss,
    ask,
    await_idle,
    await_results,
    count,
    result_bodies,
)
from async_processor.testing.chaos.stage import DURABLE
from async_processor.testing.daemons import SHORT_LEASES, DaemonProcess, short_lived_settings
from async_processor.testing.eventually import eventually
from async_processor.testing.proxy import BadNetwork, bad_network
from async_processor.testing.servers import RedisServer, redis_binary

_REQUESTS: Final = 200
_STALL_SECONDS: Final = 3.0


class Pair:
    """A master, and a replica that follows it over `link`; `address` leads to who is master."""

    def __init__(self, master_args: Iterable[str]) -> None:
        self.master = RedisServer(redis_binary(), [*DURABLE, *master_args])
        self.replica = RedisServer(redis_binary(), list(DURABLE))
        self.link: BadNetwork
        self.address: BadNetwork

    async def open(self, stack: AsyncExitStack) -> None:
        """Start both, and wait until the replica has followed."""
        for server in (self.master, self.replica):
            await asyncio.to_thread(server.start)
            stack.callback(server.remove)
        self.link = await stack.enter_async_context(bad_network(self.master.port))
        self.address = await stack.enter_async_context(bad_network(self.master.port))
        await ask(self.replica, "REPLICAOF", "127.0.0.1", self.link.port)
        await eventually(lambda: _follows(self.replica), within=PATIENCE)

    async def fail_over(self) -> None:
        """The master dies, the replica takes its place with what it has, and the other follows."""
        await asyncio.to_thread(self.master.kill)
        await ask(self.replica, "REPLICAOF", "NO", "ONE")  # what the network holds is lost
        self.address.lead_to(self.replica.port)
        await asyncio.to_thread(self.master.start)
        await ask(self.master, "REPLICAOF", "127.0.0.1", self.replica.port)


async def lose_by_failover(
    name: str, folder: Path, *, confirm: Confirm, master_args: Iterable[str]
) -> Loss:
    """Let the replica lag, fail over to it, and count."""
    async with AsyncExitStack() as stack:
        pair = Pair(master_args)
        await pair.open(stack)
        url = f"redis://127.0.0.1:{pair.address.port}/0"
        producer = await stack.enter_async_context(Producer(url, confirm=confirm))
        await _start_daemon(stack, folder, url, confirm)
        accepted = await _submit(producer, "before")
        await await_results(pair.master, _REQUESTS // 4)

        pair.link.stall()
        submitting = asyncio.create_task(_submit(producer, "meanwhile"))
        await asyncio.sleep(_STALL_SECONDS)
        read = await result_bodies(pair.master)
        await pair.fail_over()

        accepted |= await submitting
        await await_idle(pair.replica)
        return count(name, accepted, {*read, *await result_bodies(pair.replica)})


async def _start_daemon(stack: AsyncExitStack, folder: Path, url: str, confirm: Confirm) -> None:
    pool = await stack.enter_async_context(SimulatedPool(latency=0.2))
    transport = {
        "confirm": {"replicas": confirm.replicas, "timeout": confirm.timeout},
        **SHORT_LEASES,
    }
    settings = short_lived_settings(url, pool.url, workers=4, transport=transport)
    await stack.enter_async_context(DaemonProcess(settings, folder))


async def _submit(producer: Producer, name: str) -> set[str]:
    """The ids of requests that count as accepted: the call returned."""
    handles = await producer.submit_many(
        Submission(id=f"{name}-{number}", payload={"prompt": "hi"}, deadline="1h")
        for number in range(_REQUESTS)
    )
    return {handle.id for handle in handles}


async def _follows(server: RedisServer) -> bool:
    role = await ask(server, "ROLE")
    return bool(role[3] == b"connected")
