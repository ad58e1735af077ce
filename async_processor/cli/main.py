"""The command line: finds the command, runs it, and turns its end into an exit code.

0 done, 1 the work failed, 2 wrong usage or configuration, 130 interrupted. What went wrong is
said on standard error. A command's module is imported when it is called, so that starting stays
fast whatever the others need.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final, NoReturn

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from async_processor import __version__
from async_processor.cli.lazy import Entry, LazyGroup
from async_processor.errors import AsyncProcessorError, BrokerUnavailable, ConfigurationError

PROGRAM: Final = "async-processor"
_INTERRUPTED: Final = 130

_COMMANDS: Final = {
    "run": Entry(
        module="run",
        name="run",
        help="Run the daemon: pull requests, send them, post results.",
        passes_arguments=True,
    ),
    "submit": Entry(module="submit", name="submit", help="Submit requests from JSON or JSONL."),
    "results": Entry(module="results", name="results", help="Take results off the result queue."),
    "cancel": Entry(module="cancel", name="cancel", help="Cancel requests by id."),
    "status": Entry(module="status", name="status", help="Show the queues, and why nothing moves."),
    "dead-letter": Entry(
        module="dead_letter",
        name="app",
        help="List, show, requeue and purge what could not be processed.",
    ),
    "config": Entry(module="config", name="app", help="Check, explain and migrate configuration."),
    "pubsub": Entry(module="pubsub", name="app", help="Prepare Google Pub/Sub."),
    "queue": Entry(module="queue", name="app", help="Prepare queues for another processor."),
    "gate": Entry(module="gate", name="app", help="See what the configured gates read and allow."),
    "demo": Entry(module="demo", name="demo", help="Watch the whole thing work, in a minute."),
    "simulate-pool": Entry(
        module="simulate_pool", name="simulate_pool", help="Serve a simulated vLLM pool."
    ),
}


class _Commands(LazyGroup):
    entries = _COMMANDS


app = typer.Typer(cls=_Commands, name=PROGRAM, add_completion=False, no_args_is_help=False)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Background LLM inference on GPU pools that already serve live traffic.

    Example: async-processor submit requests.jsonl --deadline 1h --wait
    """
    if version:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> NoReturn:
    """The console script."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    try:
        command = get_command(app)
        code = command.main(_with_command(arguments), prog_name=PROGRAM, standalone_mode=False)
    except TyperException as wrong:
        return _say(f"{wrong.format_message()} {_hint(wrong)}", wrong.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except ConfigurationError as error:
        return _say(str(error), 2)
    except BrokerUnavailable as error:
        return _say(f"{error} (the broker is that of --url, --config or REDIS_URL)", 1)
    except AsyncProcessorError as error:
        return _say(str(error), 1)
    return code if isinstance(code, int) else 0


def _with_command(arguments: Sequence[str]) -> list[str]:
    """An image that is called with flags alone runs the daemon."""
    ours = {"--help", "--version"}
    if arguments and arguments[0].startswith("-") and arguments[0] not in ours:
        return ["run", *arguments]
    return list(arguments)


def _hint(wrong: TyperException) -> str:
    context = getattr(wrong, "ctx", None)
    return f"See {context.command_path if context else PROGRAM} --help."


def _say(message: str, code: int) -> int:
    for line in message.splitlines():
        typer.echo(f"{PROGRAM}: {line}", err=True)
    return code
