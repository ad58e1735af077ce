"""`async-processor run`: the daemon.

What it needs is imported after the signals are taken care of, so that a pod that is deleted while
it starts ends in order.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from async_processor import __version__
from async_processor.daemon.garbage import (
    put_off_the_garbage_collector,
    spare_the_garbage_collector,
)

if TYPE_CHECKING:
    from async_processor.config.run_inputs import RunInputs
    from async_processor.config.settings import Settings
    from async_processor.daemon.rereading import ReadSettings

DEBUGGING: Final = 4
"""`-v` from which on every outcome is logged."""

PROCESS: Final = (sys.executable, "-P", "-m", "async_processor.cli.process")
"""What one of several processes runs; modules that lie in the working directory are not meant."""


def run(arguments: Sequence[str]) -> None:
    """Run the daemon, as the arguments configure it, until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: the arguments or the configuration are wrong.
        BrokerRefused: the broker can be reached and cannot be used.
    """
    put_off_the_garbage_collector()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    # What it asks for, to read the configuration again, is yet to come or over.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _run(arguments)


def _end(_number: int, _frame: object) -> NoReturn:
    """Nothing runs yet; the daemon replaces this by its own drain."""
    sys.exit(0)


def _run(arguments: Sequence[str]) -> None:
    from async_processor.config.run_inputs import settings_from
    from async_processor.config.show import effective
    from async_processor.processes.number import number_of
    from async_processor.telemetry import logs

    inputs = settings_from(arguments, os.environ)
    level = "debug" if inputs.verbosity >= DEBUGGING else "info"
    logs.configure(level=level)
    log = logs.get_logger(__name__)
    for note in inputs.notes:
        log.warning("configuration_note", note=note)
    processes = number_of(inputs.settings)
    log.info("starting", version=__version__, configuration=effective(inputs.settings))

    def read() -> Settings:
        return settings_from(arguments, os.environ).settings

    if processes == 1:
        _run_alone(inputs, read)
    else:
        _supervise(inputs, read, processes, level)


def _run_alone(inputs: RunInputs, read: ReadSettings) -> None:
    from async_processor.cli import loop
    from async_processor.daemon.build import build
    from async_processor.daemon.config_watch import ConfigWatch
    from async_processor.daemon.daemon import Daemon
    from async_processor.daemon.reload import Reloader
    from async_processor.daemon.tracing import build_tracing

    parts = build(inputs.settings, tracing=build_tracing(os.environ))
    reloader = Reloader(read, parts.topology, parts.shared)
    watch = ConfigWatch(inputs.files, reloader.reload, seen=inputs.fingerprint)
    daemon = Daemon(parts, watch)
    spare_the_garbage_collector()
    loop.run(daemon.run())


def _supervise(inputs: RunInputs, read: ReadSettings, processes: int, level: str) -> None:
    from async_processor.cli import loop
    from async_processor.processes.supervisor import Supervisor

    supervisor = Supervisor(inputs.settings, PROCESS, processes=processes, level=level)
    spare_the_garbage_collector()
    loop.run(supervisor.run(read, inputs.files, seen=inputs.fingerprint))
