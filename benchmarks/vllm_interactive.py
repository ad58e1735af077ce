"""What interactive users of two real vLLM servers notice of a backlog, with the gate and without.

The same chats arrive in three situations, by turns: alone, beside the backlog with the gate
`vllm-pool`, and beside it without a gate. What counts is the time to the first token. Which of a
turn's situations feels the neighbours on the machine is chance, hence medians over the turns.

A server runs four sequences at once. The gate lets background work into a pod while nothing else
runs there, one request at a time, so that users share their steps with one sequence at most.
Prompts are long: computing them takes several times as long as the step of the batch that may be
under way when one comes, as on a GPU. With short ones it is that step that would be measured, which
no gate can spare users of a pod that does anything else at all.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import msgspec

from async_processor.sim.arrivals import Rhythm
from async_processor.sim.traffic import ChatSettings, InteractiveTraffic, TrafficReport
from async_processor.testing.eventually import eventually
from async_processor.testing.servers import free_port
from benchmarks.contender import Contender, our_configuration
from benchmarks.processes import running
from benchmarks.report import Cell, Report
from benchmarks.stage import stage
from benchmarks.vllm_installation import Installation
from benchmarks.vllm_servers import MODEL, Shape, vllm_servers

SERVERS: Final = 2
SHAPE: Final = Shape(max_model_len=2048, num_gpu_blocks_override=257)
RHYTHM: Final = Rhythm(burst_seconds=5, pause_seconds=5, burst_rate=3, pause_rate=1)
CHAT: Final = ChatSettings(model=MODEL, prompt_words=1500, output_tokens=40)
BACKGROUND_TOKENS: Final = 100
WORKERS: Final = 8
GATE: Final = "{type: vllm-pool, urls: [<urls>], max_running_per_pod: 1}"
ALONE: Final = "no background"
_SITUATIONS: Final[Mapping[str, str]] = {
    ALONE: "",
    "with the gate": GATE,
    "without a gate": "{type: constant}",
}
_ALONE_SECONDS: Final = 120.0
_PATIENCE: Final = 600.0
_SETTLING_DOWN: Final = 2.0
_AIMS: Final = (
    "aim: p95 with the gate within 1.25 x of no background. Time to first token in seconds,"
    " medians of the turns; the ratios are medians of each turn's."
)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What the users saw in one situation, and how long the backlog took (seconds), if any."""

    users: TrafficReport
    seconds: float | None = None


async def vllm_interactive(folder: Path, *, requests: int = 500, turns: int = 2) -> Report:
    """Compare the three situations; vLLM is installed into `folder` if it is not there."""
    installation = Installation(folder)
    await installation.prepare()
    seen: dict[str, list[Turn]] = {name: [] for name in _SITUATIONS}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as logs:
        async with (
            vllm_servers(installation, Path(logs), SERVERS, SHAPE) as urls,
            _balanced(urls) as front,
        ):
            for number in range(turns):
                for name, gate in _SITUATIONS.items():
                    settings = gate.replace("<urls>", ", ".join(urls))
                    turn = await _turn(front, settings, requests, seed=number)
                    _tell(f"turn {number + 1} of {turns}, {name}", turn)
                    seen[name].append(turn)
    rows = [_row(name, each, seen[ALONE]) for name, each in seen.items()]
    title = f"{SERVERS} vLLM servers: chats beside {requests} requests, {turns} turns"
    return Report(name="vllm", title=title, rows=rows, aims=_AIMS)


def _tell(what: str, turn: Turn) -> None:
    """Say how far it is: a turn takes minutes."""
    users = turn.users
    backlog = f", backlog {turn.seconds:.0f} s" if turn.seconds else ""
    first = f"{users.first_token_p50:.3f} and {users.first_token_p95:.3f} s"
    text = f"{what}: TTFT p50 and p95 {first} of {users.requests} chats{backlog}"
    print(text, file=sys.stderr, flush=True)


@asynccontextmanager
async def _balanced(urls: Sequence[str]) -> AsyncIterator[str]:
    port = free_port()
    front = f"http://127.0.0.1:{port}"
    command = (sys.executable, "-m", "benchmarks.balancer", str(port), *urls)
    async with running(command, Path("/dev/null")), httpx.AsyncClient() as client:

        async def healthy() -> bool:
            try:
                return (await client.get(f"{front}/health")).is_success
            except httpx.TransportError:
                return False

        await eventually(healthy)
        yield front


async def _turn(front: str, gate: str, requests: int, *, seed: int) -> Turn:
    traffic = InteractiveTraffic(front, rhythm=RHYTHM, chat=CHAT, seed=seed)
    if not gate:
        async with traffic:
            await asyncio.sleep(_ALONE_SECONDS)
            return Turn(users=traffic.report())
    configuration = our_configuration().replace("{type: constant}", gate)
    async with (
        stage() as here,
        here.processor(Contender(configuration=configuration), front, workers=WORKERS),
    ):
        await here.lay_aside_each(repeat(_background(), requests))
        await asyncio.sleep(_SETTLING_DOWN)
        async with traffic:
            seconds = await here.work_off(requests, patience=_PATIENCE)
            return Turn(users=traffic.report(), seconds=seconds)


def _background() -> bytes:
    return msgspec.json.encode(
        {
            "model": MODEL,
            "prompt": "word " * 40,
            "max_tokens": BACKGROUND_TOKENS,
            "ignore_eos": True,
        }
    )


def _row(name: str, turns: Sequence[Turn], alone: Sequence[Turn]) -> Mapping[str, Cell]:
    p50, p95 = _of(turns, 50), _of(turns, 95)
    backlog = [turn.seconds for turn in turns if turn.seconds is not None]
    return {
        "what": name,
        "TTFT p50 s": median(p50),
        "p95 s": median(p95),
        "p50 / alone": median(a / b for a, b in zip(p50, _of(alone, 50), strict=True)),
        "p95 / alone": median(a / b for a, b in zip(p95, _of(alone, 95), strict=True)),
        "p95 of each turn": ", ".join(f"{each:.3f}" for each in p95),
        "chats": sum(turn.users.requests for turn in turns),
        "failed": sum(turn.users.failures for turn in turns),
        "backlog s": median(backlog) if backlog else None,
    }


def _of(turns: Sequence[Turn], percent: int) -> list[float]:
    name = f"first_token_p{percent}"
    return [getattr(turn.users, name) for turn in turns]
