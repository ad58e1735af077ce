"""Notices that the configuration has changed: its files' contents, or SIGHUP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from async_processor.config.fingerprint import fingerprint

INTERVAL: Final = 2.0
"""Seconds between two looks at the files."""

Reload = Callable[[], Awaitable[None]]


class ConfigWatch:
    """Calls `reload` after every change; it deals with its own errors.

    `seen` is the fingerprint of the files as they were read: what changed before the watch runs is
    a change too.
    """

    def __init__(self, files: Sequence[Path], reload: Reload, *, seen: bytes) -> None:
        self._files = tuple(files)
        self._reload = reload
        self._asked = asyncio.Event()
        self._seen = seen

    def ask(self) -> None:
        """Reload even if nothing has changed, as soon as the watch runs."""
        self._asked.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._look()
            await self._wait()

    async def _look(self) -> None:
        """Reload if the contents are others, or somebody asked for it."""
        asked = self._asked.is_set()
        self._asked.clear()
        found = await asyncio.to_thread(fingerprint, self._files)
        changed, self._seen = found != self._seen, found
        if asked or changed:
            await self._reload()

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INTERVAL):
                await self._asked.wait()
