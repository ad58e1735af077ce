"""`async-processor run`: the daemon.

What it needs is imported after the signals are taken care of, so that a pod that is deleted while
it starts ends in order.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import Final, NoReturn

import typer

from async_processor import __version__

DEBUGGING: Final = 4
"""`-v` from which on every outcome is logged."""

_YOUNG_OBJECTS: Final = 10_000
"""How many may come before the garbage collector looks through them; Python's own figure is 700."""

_HELP: Final = frozenset({"--help", "-help", "-h"})


def run(context: typer.Context) -> None:
    """Run the daemon until SIGTERM or SIGINT; a second one gives everything back at once.

    Example: async-processor run --config config.yaml
    """
    if _HELP.intersection(context.args):
        from async_processor.cli.run_help import flags_help

        typer.echo(context.get_help())
        typer.echo(flags_help())
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    # What it asks for, to read the configuration again, is yet to come or over.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _run(context.args)


def _end(_number: int, _frame: object) -> NoReturn:
    """Nothing runs yet; the daemon replaces this by its own drain."""
    sys.exit(0)


def _run(arguments: list[str]) -> None:
    from async_processor.cli import loop
    from async_processor.config.run_inputs import settings_from
    from async_processor.config.show import effective
    from async_processor.daemon.build import build
    from async_processor.daemon.config_watch import ConfigWatch
    from async_processor.daemon.daemon import Daemon
    from async_processor.daemon.reload import Reloader
    from async_processor.daemon.tracing import build_tracing
    from async_processor.telemetry import logs

    inputs = settings_from(arguments, os.environ)
    logs.configure(level="debug" if inputs.verbosity >= DEBUGGING else "info")
    log = logs.get_logger(__name__)
    for note in inputs.notes:
        log.warning("configuration_note", note=note)
    log.info("starting", version=__version__, configuration=effective(inputs.settings))
    parts = build(inputs.settings, tracing=build_tracing(os.environ))
    reloader = Reloader(
        lambda: settings_from(arguments, os.environ).settings, parts.topology, parts.shared
    )
    watch = ConfigWatch(inputs.files, reloader.reload, seen=inputs.fingerprint)
    daemon = Daemon(parts, watch)
    _spare_the_garbage_collector()
    loop.run(daemon.run())


def _spare_the_garbage_collector() -> None:
    """What stands now stands to the end, and requests hardly ever leave cycles behind.

    Going through all modules again and again would cost a quarter of the daemon's CPU time. Young
    objects are looked through less often, for those of the requests in flight are all alive.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
