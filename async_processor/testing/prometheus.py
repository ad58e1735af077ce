"""A real Prometheus for tests: its own process, port and data, scraping every second."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import httpx

from async_processor.testing.servers import ServerFailed, free_port

_START_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.05


def prometheus_binary() -> str | None:
    """The installed prometheus, if there is one."""
    return shutil.which("prometheus")


class PrometheusServer:
    """Scrapes `targets` (host:port, path /metrics) every second.

    `labels`, by target, are added to every series of it. `rules` is the text of a rule file, whose
    rules are evaluated every second. `configuration`, the text of a configuration file, takes the
    place of all these. Port and data stay the same over restarts.
    """

    def __init__(
        self,
        targets: Sequence[str],
        *,
        labels: Mapping[str, Mapping[str, str]] | None = None,
        rules: str = "groups: []",
        configuration: str = "",
    ) -> None:
        self._data = Path(tempfile.mkdtemp(prefix="async-processor-prometheus-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        (self._data / "prometheus.yml").write_text(
            configuration or _configuration(targets, labels or {})
        )
        (self._data / "rules.yml").write_text(rules)

    @property
    def url(self) -> str:
        """What `prometheus.url` is to be."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._data, ignore_errors=True)

    def start(self) -> None:
        """Start the process and wait until it answers queries."""
        binary = prometheus_binary()
        if binary is None:
            raise ServerFailed("prometheus is not installed")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own arguments
                [
                    binary,
                    f"--config.file={self._data / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._data / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
                cwd=self._data,
            )
        self._await_ready()

    def kill(self) -> None:
        """End the process at once; a paused one too."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(_START_SECONDS)

    def pause(self) -> None:
        """Accept connections and answer nothing, until `resume`."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._send(signal.SIGCONT)

    @property
    def _log(self) -> Path:
        return self._data / "server.log"

    def _send(self, number: signal.Signals) -> None:
        if self._process is None:
            raise ServerFailed("prometheus does not run")
        self._process.send_signal(number)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._ready():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                log = self._log.read_text(errors="replace")[-2000:]
                raise ServerFailed(f"prometheus did not start:\n{log}")
            time.sleep(_PAUSE_SECONDS)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=5).is_success
        except httpx.HTTPError:
            return False


def _configuration(targets: Sequence[str], labels: Mapping[str, Mapping[str, str]]) -> str:
    """JSON is YAML too."""
    scraped = [{"targets": [target], "labels": dict(labels.get(target, {}))} for target in targets]
    return json.dumps(
        {
            "global": dict.fromkeys(
                ("scrape_interval", "scrape_timeout", "evaluation_interval"), "1s"
            ),
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "test", "static_configs": scraped}],
        }
    )
