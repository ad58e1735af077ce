"""A group of commands whose modules are imported when they are called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import msgspec
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command is: `name` in `async_processor.cli.<module>`, a function or a Typer app.

    With `passes_arguments` the command reads all that follows it by itself.
    """

    module: str
    name: str
    help: str
    passes_arguments: bool = False

    def placeholder(self, name: str) -> TyperCommand:
        """What the group's help shows, without importing anything."""
        return TyperCommand(name, help=self.help)

    def load(self) -> Any:
        """Import the command."""
        found = getattr(import_module(f"async_processor.cli.{self.module}"), self.name)
        return get_command(found if isinstance(found, typer.Typer) else self._app(found))

    def _app(self, function: Any) -> typer.Typer:
        settings = (
            {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
            if self.passes_arguments
            else {}
        )
        made = typer.Typer(add_completion=False)
        made.command(context_settings=settings)(function)
        return made


class LazyGroup(TyperGroup):
    """Knows its commands by `entries`."""

    entries: ClassVar[Mapping[str, Entry]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in self.entries.items():
            self.commands[name] = entry.placeholder(name)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.entries)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in self.entries:
            self.commands[args[0]] = self.entries[args[0]].load()
        return super().resolve_command(ctx, args)
