"""One trial: a plan is carried out on a stage, and the verdict is found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from async_processor.testing.chaos.catalogue import FAULTS
from async_processor.testing.chaos.fault import Fault, Scope, Strike
from async_processor.testing.chaos.ledger import EVERYBODY, Incident
from async_processor.testing.chaos.plan import Step
from async_processor.testing.chaos.replica import Replica
from async_processor.testing.chaos.stage import DEAD_LETTERS, USUAL, Scene, Stage, stage
from async_processor.testing.chaos.verdict import Verdict, judge
from async_processor.testing.eventually import eventually, until
from async_processor.wire.result import ErrorCode

_TRIES: Final = 5
_WORK_SECONDS: Final = 10.0
"""So long a fault waits for a call to strike, unless there is nothing left to do."""
_QUIET_SECONDS: Final = 1.0
"""After the last result, for one too many to show itself."""


async def trial(
    name: str,
    plan: Sequence[Step],
    folder: Path,
    *,
    scene: Scene = USUAL,
    one_by_one: bool = False,
    patience: float = 120.0,
    faults: Mapping[str, Fault] = FAULTS,
) -> Verdict:
    """Carry a plan out; requests without a result after `patience` seconds are lost.

    With `one_by_one` a fault waits until everything has recovered from the one before.
    """
    began = time.monotonic()
    async with stage(scene, folder) as here:
        if one_by_one:
            await _one_by_one(here, plan, faults, patience)
        else:
            await _side_by_side(here, plan, faults)
        await _await_results(here, patience)
        verdict = judge(name, here.submitted, here.results.kinds, here.results.seen_at, here.ledger)
        return msgspec.structs.replace(
            verdict,
            complaints=tuple(here.complaints),
            missed=here.missed,
            seconds=time.monotonic() - began,
        )


async def _one_by_one(
    here: Stage, plan: Sequence[Step], faults: Mapping[str, Fault], patience: float
) -> None:
    for step in plan:
        try:
            await _until_it_strikes(here, step, faults[step.fault], patience)
        except TimeoutError:
            here.complaints.append(f"{here.missing} requests have no result after: {step.fault}")
            return


async def _until_it_strikes(here: Stage, step: Step, fault: Fault, patience: float) -> None:
    """Submit, strike and recover; again, a few times, if no request was struck."""
    for _ in range(_TRIES):
        await here.submit(step.submit)
        incident = await _strike(here, step, fault)
        await until(lambda: not here.missing, within=patience)
        if here.ledger.struck([incident]):
            return
    here.complaints.append(f"struck no request in {_TRIES} tries: {step.fault}")


async def _side_by_side(here: Stage, plan: Sequence[Step], faults: Mapping[str, Fault]) -> None:
    """Faults that touch different things may last side by side; the plan goes on meanwhile."""
    async with asyncio.TaskGroup() as under_way:
        for step in plan:
            await asyncio.sleep(step.pause)
            await here.submit(step.submit)
            under_way.create_task(_strike(here, step, faults[step.fault]))


async def _strike(here: Stage, step: Step, fault: Fault) -> Incident:
    replica = here.replicas[step.replica]
    await asyncio.sleep(step.delay)
    async with _lock(here, replica, fault.scope):
        touches = replica.name if fault.scope is Scope.REPLICA else EVERYBODY
        await _wait_for_work(here, touches)
        with here.ledger.incident(fault.name, touches) as incident:
            random = Random(step.seed)
            await fault.act(Strike(stage=here, replica=replica, random=random, incident=incident))
        if fault.scope is Scope.REPLICA and (complaint := await replica.revive()):
            here.complaints.append(complaint)
    return incident


async def _wait_for_work(here: Stage, touches: str) -> None:
    """So that there is something to strike; but the plan goes on."""

    def at_work_or_idle() -> bool:
        return here.ledger.running(touches) or here.idle

    with suppress(TimeoutError):
        await until(at_work_or_idle, within=_WORK_SECONDS)


def _lock(here: Stage, replica: Replica, scope: Scope) -> asyncio.Lock:
    match scope:
        case Scope.REPLICA:
            return replica.busy
        case Scope.BROKER:
            return here.broker_busy
        case Scope.INFERENCE:
            return here.front_busy


async def _await_results(here: Stage, patience: float) -> None:
    """Wait for every result, and for one too many; then look at what is left in Redis."""
    try:
        await until(lambda: not here.missing, within=patience)
    except TimeoutError:
        return
    await asyncio.sleep(_QUIET_SECONDS)
    await here.results.look()
    try:
        await eventually(lambda: _tidy(here))
    except TimeoutError:
        here.complaints.append(f"left in Redis: {await here.leftovers()}")
    await _check_dead_letters(here)
    for replica in here.replicas:
        if not replica.daemon.running:
            here.complaints.append(f"{replica.name} ended:\n{replica.daemon.log()[-2000:]}")


async def _check_dead_letters(here: Stage) -> None:
    """Only what killed its workers too often lies there."""
    letters = await here.asking.execute("LLEN", DEAD_LETTERS)
    expected = sum(ErrorCode.MAX_DELIVERIES in kinds for kinds in here.results.kinds.values())
    if letters != expected:
        here.complaints.append(f"{letters} dead letters for {expected} times MAX_DELIVERIES")


async def _tidy(here: Stage) -> bool:
    return not await here.leftovers()
