"""Every call in flight is a connection, and a connection is an open file of this process.

The soft limit is 1,024 by custom, for the sake of old programs; the hard one is what is meant.
"""

from __future__ import annotations

import resource
from typing import Final

from async_processor.telemetry.logs import get_logger

BESIDES: Final = 256
"""Open files for all but the calls: the broker, readings, probes, libraries."""

_log = get_logger(__name__)


def provide(calls: int) -> None:
    """Let the process have as many open files as so many calls need.

    Where the hard limit is too low for them the log says so: connections beyond it fail, and their
    requests are tried again.
    """
    needed = calls + BESIDES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _allows(soft, needed):
        return
    enough = _allows(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed if enough else hard, hard))
    if not enough:
        _log.warning(
            "open_files_limited",
            limit=hard,
            needed=needed,
            workers=calls,
            hint="raise the limit on open files (ulimit -n, LimitNOFILE) or lower workers",
        )


def _allows(limit: int, files: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= files
