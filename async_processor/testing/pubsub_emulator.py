"""Google's own Pub/Sub emulator, where the Google Cloud SDK is installed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from async_processor.testing.servers import ServerFailed, free_port

_INSIDE_SDK: Final = "platform/pubsub-emulator/bin/cloud-pubsub-emulator"
_SDKS: Final = ("/usr/lib/google-cloud-sdk", "/opt/google-cloud-sdk", "/usr/share/google-cloud-sdk")
_START_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.05


def emulator_binary() -> Path | None:
    """The emulator, if there is one and a Java to run it."""
    gcloud = shutil.which("gcloud")
    homes = [Path(gcloud).resolve().parents[1]] if gcloud else []
    for home in (*homes, *map(Path, _SDKS), Path.home() / "google-cloud-sdk"):
        if (home / _INSIDE_SDK).exists() and shutil.which("java"):
            return home / _INSIDE_SDK
    return None


class PubSubEmulator:
    """One emulator on a free port; it keeps everything in memory."""

    def __init__(self) -> None:
        self._port = free_port()
        self._log = Path(tempfile.mkstemp(prefix="pubsub-emulator-")[1])
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def host(self) -> str:
        """What PUBSUB_EMULATOR_HOST is set to."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it and wait until it listens; raises ServerFailed."""
        binary = emulator_binary()
        if binary is None:
            raise ServerFailed("the Google Cloud SDK is not installed")
        with self._log.open("wb") as log:
            # A script that starts Java: both are ended, as one group.
            self._process = subprocess.Popen(  # noqa: S603
                [str(binary), "--host=127.0.0.1", f"--port={self._port}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        give_up = time.monotonic() + _START_SECONDS
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise ServerFailed(f"the emulator did not start:\n{self._log.read_text()}")
            time.sleep(_PAUSE_SECONDS)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        self._log.unlink(missing_ok=True)
