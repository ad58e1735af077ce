"""Notices that the configuration has changed: its files' contents, or SIGHUP.

Contents are compared, not times or names, so that the symbolic links of a mounted ConfigMap need
no special care, and a file that is only touched causes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

INTERVAL: Final = 2.0
"""Seconds between two looks at the files."""

Reload = Callable[[], Awaitable[None]]


class ConfigWatch:
    """Calls `reload` after every change; it deals with its own errors."""

    def __init__(self, files: Sequence[Path], reload: Reload) -> None:
        self._files = tuple(files)
        self._reload = reload
        self._asked = asyncio.Event()
        self._seen = b""

    async def run(self) -> None:
        """Run until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._asked.set)
        try:
            self._seen = await self._fingerprint()
            while True:
                await self._change()
                await self._reload()
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def _change(self) -> None:
        """Wait for SIGHUP or for other contents."""
        while True:
            try:
                async with asyncio.timeout(INTERVAL):
                    await self._asked.wait()
            except TimeoutError:
                asked = False
            else:
                asked = True
                self._asked.clear()
            fingerprint = await self._fingerprint()
            changed, self._seen = fingerprint != self._seen, fingerprint
            if asked or changed:
                return

    async def _fingerprint(self) -> bytes:
        return await asyncio.to_thread(_fingerprint, self._files)


def _fingerprint(files: Sequence[Path]) -> bytes:
    digest = hashlib.sha256()
    for file in files:
        try:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        except OSError as error:
            # While it is being replaced it may be missing; reading it will say so.
            digest.update(type(error).__name__.encode())
    return digest.digest()
