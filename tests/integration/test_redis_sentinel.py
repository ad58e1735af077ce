"""Redis behind Sentinel: the master is found by name, and found again after a failover."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from async_processor.errors import BrokerUnavailable
from async_processor.redis_io.connect import open_client
from async_processor.testing.eventually import eventually
from async_processor.testing.messages import DEADLINE, message
from async_processor.testing.servers import RedisServer, free_port, redis_binary
from async_processor.testing.stage import QUEUE, answer, ids
from async_processor.transport.base import Settlement
from async_processor.transport.redis_sorted_set import RedisSortedSet
from async_processor.transport.settings import RedisSettings

PASSWORD = "pw"


class Watched:
    """A master, a replica of it, and one Sentinel that is enough to fail over."""

    def __init__(self, master: RedisServer, replica: RedisServer, sentinel_port: int) -> None:
        self.master = master
        self.replica = replica
        self.url = f"redis+sentinel://:{PASSWORD}@127.0.0.1:1,127.0.0.1:{sentinel_port}/main/0"


@pytest.fixture
def watched(tmp_path: Path, sentinel_binary: str) -> Iterator[Watched]:
    login = ["--requirepass", PASSWORD, "--masterauth", PASSWORD]
    with RedisServer(redis_binary(), login) as master:
        follow = ["--replicaof", "127.0.0.1", str(master.port), "--repl-diskless-sync-delay", "0"]
        with RedisServer(redis_binary(), [*login, *follow]) as replica:
            port = free_port()
            process = _start_sentinel(sentinel_binary, tmp_path, port, master.port)
            yield Watched(master, replica, port)
            process.terminate()
            process.wait(60)


def _start_sentinel(binary: str, folder: Path, port: int, master: int) -> subprocess.Popen[bytes]:
    config = folder / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor main 127.0.0.1 {master} 1\n"
        f"sentinel auth-pass main {PASSWORD}\n"
        "sentinel down-after-milliseconds main 500\n"
        "sentinel failover-timeout main 3000\n"
    )
    with (folder / "sentinel.log").open("wb") as log:
        return subprocess.Popen([binary, str(config)], stdout=log, stderr=log)


async def replicated(watched: Watched) -> None:
    """Wait until the Sentinel knows the replica, and the replica has the master's data."""
    client = open_client(f"redis://:{PASSWORD}@127.0.0.1:{watched.replica.port}/0")
    sentinel = open_client(f"redis://127.0.0.1:{watched.url.split(':')[-1].split('/')[0]}")

    async def in_step() -> bool:
        try:
            known = await sentinel.execute("SENTINEL", "REPLICAS", "main")
        except BrokerUnavailable:
            return False
        role = await client.execute("ROLE")
        healthy = [b"slave" in replica and b"ok" in replica for replica in known]
        return role[3] == b"connected" and any(healthy)

    await eventually(in_step)
    await client.close()
    await sentinel.close()


async def test_work_goes_on_after_a_failover(watched: Watched) -> None:
    await replicated(watched)
    transport = RedisSortedSet(RedisSettings(url=watched.url), [QUEUE])
    await transport.start()
    producer = open_client(watched.url)
    await producer.execute("ZADD", QUEUE, DEADLINE, message("a"), DEADLINE + 1, message("b"))
    assert await transport.wait_for_work(QUEUE, 60)
    (delivery,) = await transport.claim(QUEUE, 1, suspects=False)
    await producer.execute("WAIT", 1, 60_000, wait=60)

    await asyncio.to_thread(watched.master.kill)
    settled = await transport.settle(delivery, answer(delivery))

    assert settled is Settlement.DONE
    new_master = open_client(f"redis://:{PASSWORD}@127.0.0.1:{watched.replica.port}/0")
    assert await new_master.execute("LLEN", "result-list") == 1
    assert ids(await transport.claim(QUEUE, 9, suspects=False)) == ["b"]
    await producer.execute("ZADD", "other", DEADLINE, message("c"))
    assert await transport.wait_for_work("other", 60), "watching the new master"
    for each in (new_master, producer):
        await each.close()
    await transport.stop()
