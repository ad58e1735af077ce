"""All commands, each imported when it is called, and what is said of wrong usage."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from async_processor import __version__
from async_processor.cli.lazy import Entry, LazyGroup
from async_processor.cli.program import INTERRUPTED, PROGRAM, say

_COMMANDS: Final = {
    "run": Entry(
        module="run_help",
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


def call(arguments: list[str]) -> int:
    """Run the command that the arguments name; returns the exit code."""
    try:
        command = get_command(app)
        code = command.main(arguments, prog_name=PROGRAM, standalone_mode=False)
    except TyperException as wrong:
        return say(f"{wrong.format_message()} {_hint(wrong)}", wrong.exit_code)
    except typer.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _hint(wrong: TyperException) -> str:
    context = getattr(wrong, "ctx", None)
    return f"See {context.command_path if context else PROGRAM} --help."
