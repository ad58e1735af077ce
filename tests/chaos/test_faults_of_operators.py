"""What an operator does to Redis: what is deleted is gone, and the daemons go on."""

from __future__ import annotations

from pathlib import Path

from async_processor.testing.chaos.stage import QUEUE, RESULTS, Scene, Stage, stage
from async_processor.testing.eventually import eventually, until

SCENE = Scene(replicas=2, workers=8, latency=0.3)
SLOW = 60.0


def answered(here: Stage, ids: list[str]) -> bool:
    return set(ids) <= here.results.kinds.keys()


async def test_after_flushall_new_requests_run(tmp_path: Path) -> None:
    async with stage(SCENE, tmp_path) as here:
        await here.submit(50)
        await until(lambda: here.ledger.calls >= 5, within=SLOW)

        await here.asking.execute("FLUSHALL")

        here.results.begin_again()
        new = await here.submit(50)
        await until(lambda: answered(here, new), within=SLOW)
        assert all(len(kinds) == 1 for kinds in here.results.kinds.values())
        assert all(replica.daemon.running for replica in here.replicas)


async def test_a_result_list_of_the_wrong_type_holds_nothing_up(tmp_path: Path) -> None:
    """Its results go to the dead letters, with their messages, until the list is one again."""
    async with stage(SCENE, tmp_path) as here:
        await here.asking.execute("SET", RESULTS, "not a list")
        stranded = await here.submit(20)

        async def buried() -> bool:
            letters: int = await here.asking.execute("LLEN", "dead-letter-list")
            return letters == len(stranded)

        await eventually(buried, within=SLOW)
        await here.asking.execute("DEL", RESULTS)
        new = await here.submit(20)
        await until(lambda: answered(here, new), within=SLOW)
        assert not await here.asking.execute("EXISTS", QUEUE)
        assert all(replica.daemon.running for replica in here.replicas)
