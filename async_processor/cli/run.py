"""`async-processor run`: the daemon."""

from __future__ import annotations

import os
from typing import Final

import typer

from async_processor import __version__
from async_processor.cli import loop
from async_processor.config.run_inputs import settings_from
from async_processor.config.show import effective
from async_processor.daemon.build import build
from async_processor.daemon.daemon import Daemon
from async_processor.telemetry import logs

DEBUGGING: Final = 4
"""`-v` from which on every outcome is logged."""

_HELP: Final = frozenset({"--help", "-help", "-h"})


def run(context: typer.Context) -> None:
    """Run the daemon until SIGTERM or SIGINT; a second one gives everything back at once.

    Example: async-processor run --config config.yaml
    """
    if _HELP.intersection(context.args):
        typer.echo(context.get_help())
        return
    inputs = settings_from(context.args, os.environ)
    logs.configure(level="debug" if inputs.verbosity >= DEBUGGING else "info")
    log = logs.get_logger(__name__)
    for note in inputs.notes:
        log.warning("configuration_note", note=note)
    log.info("starting", version=__version__, configuration=effective(inputs.settings))
    loop.run(Daemon(build(inputs.settings)).run())
