"""Faults of every kind, mixed at random: `python -m async_processor.testing.chaos`.

The same seed gives the same faults, against the same replicas, in the same order and at the same
distances. Exit code 1: a promise did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from random import randrange

import msgspec

from async_processor.testing.chaos.catalogue import FAULTS
from async_processor.testing.chaos.plan import Step, each, mixed
from async_processor.testing.chaos.report import summary, table
from async_processor.testing.chaos.stage import Scene
from async_processor.testing.chaos.trial import trial


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m async_processor.testing.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seed", type=int, default=randrange(10**6), help="default: any")
    add("--requests", type=int, default=50_000)
    add("--kills", type=int, default=500, help="how many faults kill a daemon, of two in three")
    add("--minutes", type=float, default=25.0, help="how long faults are injected, at least")
    add("--replicas", type=int, default=4)
    add("--workers", type=int, default=24, help="of each replica")
    add("--latency", type=float, default=0.5, help="of the inference server, in seconds")
    add("--lease", type=float, default=5.0, help="seconds")
    add(
        "--one-by-one",
        action="store_true",
        help="every fault once, each after recovery from the one before; --requests for each",
    )
    add("--plan", action="store_true", help="print the plan and do nothing")
    return parser.parse_args()


def _plan(options: argparse.Namespace) -> list[Step]:
    if options.one_by_one:
        return each(
            FAULTS.values(),
            seed=options.seed,
            requests=options.requests,
            replicas=options.replicas,
        )
    return mixed(
        FAULTS,
        seed=options.seed,
        requests=options.requests,
        kills=options.kills,
        seconds=60 * options.minutes,
        replicas=options.replicas,
    )


def main() -> int:
    """Carry the plan out and show what came of it."""
    options = _options()
    plan = _plan(options)
    sys.stdout.write(f"seed {options.seed}: {len(plan)} faults\n")
    sys.stdout.flush()
    if options.plan:
        sys.stdout.writelines(json.dumps(msgspec.to_builtins(step)) + "\n" for step in plan)
        return 0
    scene = Scene(
        replicas=options.replicas,
        workers=options.workers,
        latency=options.latency,
        lease=options.lease,
        seed=options.seed,
    )
    with tempfile.TemporaryDirectory(prefix="async-processor-chaos-") as folder:
        verdict = asyncio.run(
            trial(
                "all requests",
                plan,
                Path(folder),
                scene=scene,
                one_by_one=options.one_by_one,
                patience=600,
            )
        )
    sys.stdout.write(f"{table(verdict)}\n\n{summary(verdict)}\n")
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
