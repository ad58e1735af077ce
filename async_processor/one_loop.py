"""What runs in one loop, from its first use to its end."""

from __future__ import annotations

import asyncio
from functools import cached_property


class OneLoop:
    """Asks for its loop once: before Python 3.12 asyncio makes a system call of it each time, which
    counts where futures and tasks are made for each request."""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that ran when it was first asked for."""
        return asyncio.get_running_loop()
