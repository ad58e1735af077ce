"""The supervisor, with lives that only say that they live."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from async_processor.config.settings import Settings
from async_processor.daemon.config_watch import ConfigWatch
from async_processor.lifecycle import SideTaskDied
from async_processor.processes.life import Life
from async_processor.processes.orders import Orders, written
from async_processor.processes.supervisor import Supervisor


class Obedient(Life):
    """Goes by what it was told last; answers when it may, and ends when it is told to."""

    def __init__(self) -> None:
        super().__init__((), Orders(settings="", processes=2, rank=0, level=""), lambda: None)
        self.running = True
        self.may_answer = asyncio.Event()
        self.goes_by = ""
        self.told: list[str] = []
        self._over = asyncio.Event()

    async def run(self) -> int:
        await self._over.wait()
        return 0

    def end(self, reason: str) -> None:
        self.told.append(reason)
        self._over.set()

    async def ask(self, name: str, content: Any = None, **_how: Any) -> Any:
        self.told.append(name)
        await self.may_answer.wait()
        for _ in range(5):  # an answer takes longer than a question
            await asyncio.sleep(0)
        self.goes_by = content


def settings(workers: int) -> Settings:
    return Settings.model_validate(
        {
            "transport": {
                "type": "redis-sortedset",
                "url": "redis://127.0.0.1:1",
                "queues": [{"igw_base_url": "http://127.0.0.1:1"}],
            },
            "worker_pools": [{"id": "default", "workers": workers}],
            "server": {"bind": "127.0.0.1", "health_port": 0, "metrics_port": 0},
        }
    )


class Scene:
    def __init__(self) -> None:
        self.supervisor = Supervisor(settings(2), (), processes=2, level="info")
        self.lives = [Obedient(), Obedient()]
        for berth, life in zip(self.supervisor._berths, self.lives, strict=True):
            berth.life = life
            berth._new_life = lambda life=life: life  # type: ignore[misc]


async def test_who_came_late_is_not_led_back_to_older_settings() -> None:
    scene = Scene()
    first, second = scene.lives
    scene.supervisor._catch_up()
    for _ in range(3):
        await asyncio.sleep(0)
    change = asyncio.create_task(scene.supervisor._take_over(settings(5)))
    for life in (second, first):
        for _ in range(3):
            await asyncio.sleep(0)
        life.may_answer.set()
    await change
    while scene.supervisor._following:
        await asyncio.gather(*scene.supervisor._following)
    assert [life.goes_by for life in scene.lives] == [written(settings(5))] * 2


async def test_nothing_is_read_anew_once_it_ends() -> None:
    scene = Scene()
    scene.supervisor._end("SIGTERM")

    def read() -> Settings:
        pytest.fail("it was read")

    await scene.supervisor._reload(read)
    assert [life.told for life in scene.lives] == [["SIGTERM"]] * 2


async def test_a_watch_that_dies_ends_the_replica_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def dies(_: ConfigWatch) -> None:
        raise RuntimeError("no thread is left")

    monkeypatch.setattr(ConfigWatch, "run", dies)
    scene = Scene()
    with pytest.raises(SideTaskDied, match="no thread is left"):
        await scene.supervisor.run(lambda: settings(2), (), seen=b"")
    assert [life.told for life in scene.lives] == [["failure"]] * 2
