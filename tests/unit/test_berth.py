"""The place of a process: who dies is followed, and when nobody can start it is given up."""

from __future__ import annotations

import asyncio

import pytest

from async_processor.errors import AsyncProcessorError, ConfigurationError, Problem
from async_processor.processes import berth as module
from async_processor.processes.berth import FALSE_STARTS, Berth, ProcessFailed
from async_processor.processes.life import Life, Lifeless
from async_processor.processes.orders import Orders
from async_processor.testing.eventually import until

WRONG = ConfigurationError([Problem(path="transport.url", message="is wrong")])

REFUSED = AsyncProcessorError("Redis denies access")
HUNG = Lifeless("it did not come up")


class Scripted(Life):
    """A life without a process, which ends when it is told to."""

    def __init__(self, code: int, *, runs: bool, failure: AsyncProcessorError | None) -> None:
        orders = Orders(settings="", processes=2, rank=0, level="info")
        super().__init__((), orders, lambda: None)
        self.running, self.failure = runs, failure
        self._code = code
        self.reasons: list[str] = []
        self.over = asyncio.Event()

    async def run(self) -> int:
        await self.over.wait()
        return self._code

    def end(self, reason: str) -> None:
        self.reasons.append(reason)
        self.over.set()


class Scene:
    def __init__(
        self, *, code: int = -9, runs: bool = True, failure: AsyncProcessorError | None = None
    ) -> None:
        self.lives: list[Scripted] = []
        self.dead: list[tuple[Life, int]] = []
        self._script = {"runs": runs, "failure": failure}
        self._code = code
        self.berth = Berth(1, self._new_life, lambda life, code: self.dead.append((life, code)))

    def _new_life(self) -> Life:
        self.lives.append(Scripted(self._code, **self._script))  # type: ignore[arg-type]
        return self.lives[-1]

    async def dies(self, number: int) -> None:
        await until(lambda: len(self.lives) == number)
        self.lives[-1].over.set()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.0)


async def test_who_dies_is_followed_until_the_end() -> None:
    scene = Scene()
    running = asyncio.create_task(scene.berth.run())
    for number in range(1, 10):
        await scene.dies(number)
    await until(lambda: len(scene.lives) == 10)
    assert len({id(life) for life, _ in scene.dead}) == 9
    scene.berth.end("SIGTERM")
    await running
    assert scene.lives[-1].reasons == ["SIGTERM"]
    assert len(scene.lives) == 10
    assert (await scene.berth.fault()).startswith("it has died")


async def test_who_cannot_start_gives_up_in_the_end() -> None:
    scene = Scene(code=1, runs=False)
    running = asyncio.create_task(scene.berth.run())
    for number in range(1, FALSE_STARTS + 1):
        await scene.dies(number)
    with pytest.raises(ProcessFailed, match="process 1 ended with 1"):
        await running


async def test_a_mistake_in_the_configuration_ends_it_at_once() -> None:
    scene = Scene(code=2, runs=False, failure=WRONG)
    running = asyncio.create_task(scene.berth.run())
    await scene.dies(1)
    with pytest.raises(ConfigurationError, match=r"transport\.url: is wrong"):
        await running


async def test_what_the_broker_refuses_ends_it_at_once() -> None:
    scene = Scene(code=1, runs=False, failure=REFUSED)
    running = asyncio.create_task(scene.berth.run())
    await scene.dies(1)
    with pytest.raises(AsyncProcessorError, match="denies access"):
        await running


async def test_who_hung_at_the_start_is_followed_and_it_is_said() -> None:
    scene = Scene(runs=False, failure=HUNG)
    running = asyncio.create_task(scene.berth.run())
    await scene.dies(1)
    await until(lambda: len(scene.lives) == 2)
    fault = await scene.berth.fault()
    assert fault.startswith("it has been starting for")
    assert fault.endswith("the one before it could not start: it did not come up")
    for number in range(2, FALSE_STARTS + 1):
        await scene.dies(number)
    with pytest.raises(Lifeless, match="did not come up"):
        await running


async def test_who_once_ran_may_try_again() -> None:
    scene = Scene(code=2, failure=WRONG)
    running = asyncio.create_task(scene.berth.run())
    await scene.dies(1)
    await until(lambda: len(scene.lives) == 2)
    scene.berth.end("SIGTERM")
    await running


async def test_who_dies_in_a_drain_is_not_followed() -> None:
    scene = Scene()
    running = asyncio.create_task(scene.berth.run())
    await until(lambda: bool(scene.lives))
    scene.berth.end("SIGTERM")
    await running
    assert scene.berth.code == -9
    assert len(scene.lives) == 1


async def test_a_death_that_another_was_to_follow_is_no_failure_of_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 600.0)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 600.0)
    scene = Scene()
    running = asyncio.create_task(scene.berth.run())
    for number in (1, 2):
        await scene.dies(number)
    await until(lambda: len(scene.dead) == 2)
    scene.berth.end("SIGTERM")
    await running
    assert scene.berth.code == 0
