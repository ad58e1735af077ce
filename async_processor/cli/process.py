"""One of the processes of a replica; the supervisor runs it, and nobody else.

    python -m async_processor.cli.process DESCRIPTOR

The descriptor is that of its end of the line. Signals are the supervisor's business, also those
that whoever stops a service sends to all its processes at once.
"""

from __future__ import annotations

import signal
import socket
import sys

from async_processor.daemon.garbage import put_off_the_garbage_collector


def main() -> int:
    """Live until the supervisor says so, or is gone; returns the exit code."""
    put_off_the_garbage_collector()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    own_end = socket.socket(fileno=int(sys.argv[1]))
    from async_processor.cli import loop
    from async_processor.processes.process import live

    return loop.run(live(own_end))


if __name__ == "__main__":
    sys.exit(main())
