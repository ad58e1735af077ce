"""Real daemon processes for tests: the installed command with a configuration file of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import httpx
import msgspec
import yaml
from prometheus_client.parser import text_string_to_metric_families

from async_processor.testing.eventually import eventually
from async_processor.testing.servers import free_port

_START_SECONDS: Final = 120.0
_END_SECONDS: Final = 120.0
_ANSWER_SECONDS: Final = 30.0
_COMMAND: Final = "async_processor"
_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Not used: a client that has none makes one, which takes longer than the call."""
_NOTHING: Final[Mapping[str, str]] = {}

SHORT_LEASES: Final[Mapping[str, str]] = {"lease_ttl": "2s"}
"""For a test that kills daemons: what they held is soon taken back."""


class DaemonFailed(Exception):
    """A daemon did not do what a test waits for; the message ends with its log."""


class DaemonProcess:
    """One `async-processor run`. Its ports are free ones; `settings` are those of the YAML file."""

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.health_port = free_port()
        self.metrics_port = free_port()
        self.log_file = folder / "daemon.log"
        self.config_file = folder / "config.yaml"
        self.configure(settings)
        self._process: asyncio.subprocess.Process | None = None

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Write the configuration file, at once as a whole, as a mounted ConfigMap changes."""
        server = {
            "bind": "127.0.0.1",
            "health_port": self.health_port,
            "metrics_port": self.metrics_port,
            **settings.get("server", {}),
        }
        self.replace_config(yaml.safe_dump({**settings, "server": server}))

    def replace_config(self, text: str) -> None:
        """Like `configure`, with any text."""
        new = self.config_file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.config_file)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.running:
            await self.kill()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The process, running or ended."""
        if self._process is None:
            raise DaemonFailed("the daemon was never started")
        return self._process

    async def spawn(
        self, *, module: str = _COMMAND, environment: Mapping[str, str] = _NOTHING
    ) -> None:
        """Start the process and do not wait. `module` is the installed command, or a double."""
        with self.log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, "run", "--config", str(self.config_file)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONWARNINGS": "error", **environment},
            )

    @contextmanager
    def logging_to(self, file: Path) -> Iterator[None]:
        """What is started meanwhile writes its log to another file."""
        usual, self.log_file = self.log_file, file
        try:
            yield
        finally:
            self.log_file = usual

    async def start(
        self, *, module: str = _COMMAND, environment: Mapping[str, str] = _NOTHING
    ) -> None:
        """Like `spawn`, and wait until it is ready; raises DaemonFailed when it ends instead."""
        await self.spawn(module=module, environment=environment)
        await eventually(self.ready, within=_START_SECONDS)

    async def ready(self) -> bool:
        """Whether `/readyz` says so now; raises DaemonFailed when the process has ended."""
        if not self.running:
            raise DaemonFailed(f"the daemon ended with {self.process.returncode}:\n{self.log()}")
        try:
            return (await self._get(self.health_port, "/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    async def status(self) -> Mapping[str, Any]:
        """What `/status` answers."""
        answer: Mapping[str, Any] = (await self._get(self.health_port, "/status")).json()
        return answer

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name and with these labels."""
        text = (await self._get(self.metrics_port, "/metrics")).text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"llm_d_async_async_{name}"
            and labels.items() <= sample.labels.items()
        )

    async def _get(self, port: int, path: str) -> httpx.Response:
        async with httpx.AsyncClient(timeout=_ANSWER_SECONDS, verify=_TLS) as client:
            return await client.get(f"http://127.0.0.1:{port}{path}")

    async def terminate(self) -> int:
        """SIGTERM, and wait for the end; returns the exit code."""
        self.send(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> int:
        """SIGKILL, and wait for the end."""
        self.send(signal.SIGKILL)
        return await self.ended()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end; returns the exit code."""
        async with asyncio.timeout(_END_SECONDS):
            return await self.process.wait()

    def log(self) -> str:
        """Everything it has logged; nothing where its log is no file that keeps anything."""
        if not self.log_file.is_file():
            return ""
        return self.log_file.read_text(errors="replace")

    def events(self, name: str) -> list[Mapping[str, Any]]:
        """The log records of one event."""
        lines = self.log_file.read_bytes().splitlines()
        records = [msgspec.json.decode(line) for line in lines if line.startswith(b"{")]
        return [record for record in records if record.get("event") == name]


def short_lived_settings(
    broker: str,
    gateway: str,
    *,
    workers: int = 32,
    transport: Mapping[str, Any] | None = None,
    queue: Mapping[str, Any] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """A configuration with short pauses, so that a test need not wait for long.

    Not with short leases: a daemon that is held up for longer than its lease loses it, on a slow
    machine without any fault. A test that waits for the end of leases asks for `SHORT_LEASES`.
    """
    return {
        "transport": {
            "type": "redis-sortedset",
            "url": broker,
            "lease_ttl": "20s",
            "reclaim_interval": "300ms",
            "backlog_poll_interval": "500ms",
            "queues": [{"igw_base_url": gateway, **(queue or {})}],
            **(transport or {}),
        },
        "worker_pools": [{"id": "default", "workers": workers}],
        "retry": {"base_delay": "100ms", "max_delay": "1s"},
        "drain_timeout": "20s",
        **others,
    }
