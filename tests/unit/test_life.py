"""The life of a process, with real processes that behave badly."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from async_processor.cli.run import PROCESS
from async_processor.config.settings import Settings
from async_processor.processes import life as module
from async_processor.processes.life import PAGE_INTERVAL, SILENCE, Life, Lifeless, follow
from async_processor.processes.orders import Orders, written
from async_processor.testing.eventually import until

HANGS = "import signal; signal.pause()"

BEGINS_AND_DIES = """
import os, signal, socket, sys
import msgspec
line = socket.socket(fileno=int(sys.argv[1]))
size = int.from_bytes(line.recv(4, socket.MSG_WAITALL))
kind, number, *_ = msgspec.msgpack.decode(line.recv(size, socket.MSG_WAITALL))
answer = msgspec.msgpack.encode(["_Answer", number, {"owner": "me", "traced": False}, ""])
line.sendall(len(answer).to_bytes(4) + answer)
os.kill(os.getpid(), signal.SIGKILL)
"""


def _lives(pid: int | None) -> bool:
    """A process that nobody has buried yet is dead all the same."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _await_death(pid: int | None) -> None:
    """And let nothing else happen meanwhile."""
    while _lives(pid):
        time.sleep(0.001)


def life(*command: str) -> Life:
    orders = Orders(settings="", processes=2, rank=0, level="info")
    return Life(command, orders, lambda: None)


async def test_who_cannot_be_born_says_why() -> None:
    unborn = life("/nowhere/python")
    assert await unborn.run() == 1
    assert "a process cannot be started" in str(unborn.failure)
    assert "/nowhere/python" in str(unborn.failure)


async def test_who_does_not_come_up_is_killed_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "coming_up", lambda _: 0.1)
    hung = life(sys.executable, "-c", HANGS)
    assert await hung.run() == -9
    assert isinstance(hung.failure, Lifeless)
    assert "did not come up within 0.1 s" in str(hung.failure)
    assert "process_hangs" in capsys.readouterr().out


async def test_who_has_not_come_up_yet_says_for_how_long() -> None:
    hung = life(sys.executable, "-c", HANGS)
    living = asyncio.create_task(hung.run())
    await until(lambda: hung.pid is not None)
    assert (await hung.fault()).startswith("it has been starting for ")
    hung.kill()
    assert await living == -9


async def test_what_a_process_said_before_it_died_is_heard() -> None:
    """Who it was in the broker: what it held is given back by that name."""
    short = life(sys.executable, "-c", BEGINS_AND_DIES)
    living = asyncio.create_task(short.run())
    await until(lambda: short._asked)
    _await_death(short.pid)  # its answer and its death are there when the loop looks again
    assert await living == -9
    assert short.begun is not None
    assert short.begun.owner == "me"


async def test_settings_are_waited_for_longer_than_anybody_may_hang() -> None:
    """Or a change would fail for one who is soon replaced, and nobody would try it again."""
    waited: list[float] = []

    class Asked(Life):
        async def ask(self, name: str, content: Any = None, *, within: float = 0) -> Any:
            waited.append(within)

    orders = Orders(settings="", processes=2, rank=0, level="info")
    assert await follow(Asked((), orders, lambda: None), "new") == ""
    assert min(waited) > 1.1 * PAGE_INTERVAL + SILENCE


async def test_who_is_told_to_begin_by_a_supervisor_that_dies_ends_in_order() -> None:
    settings = Settings.model_validate(
        {
            "transport": {
                "type": "redis-sortedset",
                "url": "redis://127.0.0.1:1",
                "queues": [{"igw_base_url": "http://127.0.0.1:1"}],
            }
        }
    )
    orders = Orders(settings=written(settings), processes=2, rank=0, level="info")
    question = msgspec.msgpack.encode(["_Question", 0, "begin", orders])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(len(question).to_bytes(4) + question)
        ours.close()
        process = await asyncio.create_subprocess_exec(
            *(*PROCESS, str(theirs.fileno())),
            pass_fds=[theirs.fileno()],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    assert (process.returncode, said) == (0, b"")


async def test_modules_of_the_working_directory_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "socket.py").write_text("raise SystemExit(9)")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = await asyncio.create_subprocess_exec(
            *(*PROCESS, str(theirs.fileno())), pass_fds=[theirs.fileno()], cwd=tmp_path
        )
        theirs.close()
        ours.close()  # the supervisor is gone: it ends in order
        assert await process.wait() == 0
