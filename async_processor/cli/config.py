"""`async-processor config`: check a file, describe what may stand in it, take over Go's flags."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from async_processor.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from async_processor.config.migrate import Migration

app = typer.Typer(
    add_completion=False,
    help="""Check, explain and migrate configuration.

    Example: async-processor config validate config.yaml
    """,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


@app.command()
def validate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Configuration files.", show_default=False),
    ],
    as_json: AsJson = False,
) -> None:
    """Check configuration files: every mistake on a line of its own, exit code 2 if there is one.

    Variables are taken from the environment, as `run` does.

    Example: async-processor config validate config.yaml
    """
    reports = [_report(file) for file in files]
    if as_json:
        typer.echo(json.dumps(reports, indent=2))
    else:
        for report in reports:
            _print_report(report)
    if not all(report["valid"] for report in reports):
        raise typer.Exit(2)


def _report(file: Path) -> dict[str, Any]:
    from async_processor.config.load import load, warnings
    from async_processor.config.show import effective

    try:
        settings = load(file, os.environ)
    except ConfigurationError as error:
        problems = [{"path": each.path, "message": each.message} for each in error.problems]
        return {"file": str(file), "valid": False, "problems": problems}
    found = [{"path": each.path, "message": each.message} for each in warnings(settings)]
    return {
        "file": str(file),
        "valid": True,
        "problems": [],
        "warnings": found,
        "settings": effective(settings),
    }


def _print_report(report: dict[str, Any]) -> None:
    file = report["file"]
    for problem in report["problems"]:
        # Mistakes of syntax already begin with the file and the line.
        start = "" if problem["path"].startswith(file) else f"{file}: "
        typer.echo(f"{start}{problem['path']}: {problem['message']}", err=True)
    for warning in report.get("warnings", ()):
        typer.echo(f"{file}: warning: {warning['path']}: {warning['message']}", err=True)
    if report["valid"]:
        typer.echo(f"{file}: valid")


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors.

    Example: async-processor config schema > async-processor.schema.json
    """
    from async_processor.config.schema import schema_text

    typer.echo(schema_text(), nl=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def migrate(
    context: typer.Context,
    helm_values: Annotated[
        str, typer.Option(metavar="FILE|-", help="Values of the Go implementation's chart.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Print the YAML file for the flags and JSON documents of the Go implementation.

    Give the flags as they are in the deployment, in the same environment: a URL with a password
    that a variable holds is printed as ${NAME}. With --helm-values it prints values of our chart
    for those of its charts (llm-d-async, and async-processor before it). What to know about it goes
    to standard error.

    Example: async-processor config migrate --transport=redis-sortedset
    --transport-config-file=transport.json > config.yaml

    Example: helm get values REL -o yaml | async-processor config migrate --helm-values -
    """
    migration = _migrated_values(helm_values, context) if helm_values else _migrated(context)
    if as_json:
        typer.echo(json.dumps({"yaml": migration.yaml, "notes": migration.notes}, indent=2))
        return
    for note in migration.notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(migration.yaml, nl=False)


def _migrated(context: typer.Context) -> Migration:
    from async_processor.config.migrate import migrate

    return migrate(context.args, os.environ)


def _migrated_values(file: str, context: typer.Context) -> Migration:
    from async_processor.config.migrate import migrate_values
    from async_processor.config.yaml_file import read_file

    if context.args:
        message = f"got {context.args[0]!r} too: it takes the place of all other flags"
        raise ConfigurationError([Problem(path="--helm-values", message=message)])
    return migrate_values(sys.stdin.read() if file == "-" else read_file(Path(file)), file)
