"""A reload follows every change since the settings were read, and every wish for one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from async_processor.config.fingerprint import fingerprint
from async_processor.config.run_inputs import settings_from
from async_processor.daemon.config_watch import ConfigWatch
from async_processor.testing.eventually import until

CONFIG = "transport: {type: memory, queues: [{igw_base_url: 'http://x'}]}\n"


class Stage:
    """A configuration file as it was read, and how often it was read again."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_text(CONFIG)
        seen = settings_from(["--config", str(file)], {}).fingerprint
        self.reloads = 0
        self.watch = ConfigWatch([file], self._reload, seen=seen)

    async def _reload(self) -> None:
        self.reloads += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.watch.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_what_changed_before_the_watch_began_is_read(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "config.yaml")
    stage.file.write_text(CONFIG + "# changed\n")
    async with stage.running():
        await until(lambda: stage.reloads == 1)


async def test_a_wish_from_before_the_watch_began_is_heeded_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "config.yaml")
    stage.watch.ask()
    async with stage.running():
        await until(lambda: stage.reloads == 1)
        stage.watch.ask()
        await until(lambda: stage.reloads == 2)


def test_a_file_is_told_by_its_contents_alone(tmp_path: Path) -> None:
    file, link = tmp_path / "a", tmp_path / "link"
    file.write_text("a")
    link.symlink_to(file)
    before = fingerprint([file])
    assert fingerprint([link]) == before
    os.utime(file, (1, 1))
    assert fingerprint([file]) == before
    file.write_text("b")
    assert fingerprint([file]) != before
    file.unlink()
    assert fingerprint([file]) == fingerprint([link]), "both are gone"


def test_a_pipe_is_not_read_for_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert fingerprint([pipe]) == fingerprint([tmp_path / "nothing"])
