"""The command line: finds the command, runs it, and turns its end into an exit code.

0 done, 1 the work failed, 2 wrong usage or configuration, 130 interrupted. What went wrong is
said on standard error. What commands need is imported when they are called: starting stays fast
whatever the others need, and the daemon is ready the sooner for not knowing them at all.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from async_processor.cli.program import INTERRUPTED, say
from async_processor.errors import AsyncProcessorError, BrokerUnavailable, ConfigurationError

_HELP: Final = frozenset({"--help", "-help", "-h"})


def main() -> NoReturn:
    """The console script."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        return _run(_with_command(arguments))
    except KeyboardInterrupt:
        return INTERRUPTED
    except ConfigurationError as error:
        return say(str(error), 2)
    except BrokerUnavailable as error:
        return say(f"{error} (the broker is that of --url, --config or REDIS_URL)", 1)
    except AsyncProcessorError as error:
        return say(str(error), 1)


def _with_command(arguments: Sequence[str]) -> list[str]:
    """An image that is called with flags alone runs the daemon."""
    ours = {"--help", "--version"}
    if arguments and arguments[0].startswith("-") and arguments[0] not in ours:
        return ["run", *arguments]
    return list(arguments)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["run"] and _HELP.isdisjoint(arguments):
        from async_processor.cli.run import run

        run(arguments[1:])
        return 0
    from async_processor.cli.commands import call

    return call(arguments)
