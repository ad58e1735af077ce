#!/usr/bin/env python3
"""Builds and tries the image without a container engine: the Dockerfile's own steps, in a root of
Debian packages, then what it starts, as it is started in a cluster (not root, no capabilities,
nothing writable but a /tmp in memory).

    deploy/check_image.py FOLDER      needs root, debootstrap, redis-server and free ports

FOLDER keeps the root; delete it to begin anew. Python is Debian's of the same minor version.
"""

# ruff: noqa: S108, S603, S607, T201 - it is a command that starts others

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

CONTEXT: Final = Path(__file__).parents[1]
RELEASE: Final = "bookworm"
PACKAGES: Final = "ca-certificates,python3,python3-pip,python3-venv"
OURS: Final = ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt")
"""What tells this machine the way to the package index."""
PYTHON: Final = "/usr/local/python"
BROKER: Final = "redis://127.0.0.1:6479/0"
POOL: Final = ("simulate-pool", "--port", "18000", "--pod-port-base", "18100")
CONFIG: Final = "transport: {queues: [{igw_base_url: 'http://127.0.0.1:18000'}]}\n"
READY_SECONDS: Final = 60


class Image(NamedTuple):
    """What the last stage of the Dockerfile says of its containers."""

    env: Mapping[str, str]
    user: str
    entrypoint: list[str]
    cmd: list[str]
    health: list[str]


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Each instruction and its arguments, on one line."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.partition(" ")
        if word:
            yield word, rest.strip()


def build(root: Path, dockerfile: Path) -> Image:
    """Take the steps of both stages in one root."""
    env = {"PATH": f"{PYTHON}/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    folder, found = "/", dict[str, str]()
    for word, rest in instructions(dockerfile.read_text()):
        match word:
            case "FROM":
                folder = "/"
            case "ARG" | "ENV":
                env |= {name: _filled(value, env) for name, value in _pairs(rest)}
            case "WORKDIR":
                folder = rest
                (root / folder.strip("/")).mkdir(parents=True, exist_ok=True)
            case "COPY" if not rest.startswith("--from"):
                copy(root, folder, rest)
            case "RUN":
                run("chroot", str(root), "sh", "-exc", f"cd {folder}; {rest}", env=env)
            case _:
                found[word] = rest
    command = re.sub(r"^.*? CMD ", "", found["HEALTHCHECK"])
    entrypoint, cmd, health = map(json.loads, (found["ENTRYPOINT"], found["CMD"], command))
    return Image(env, found["USER"], entrypoint, cmd, health)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for word in shlex.split(text):
        name, _, value = word.partition("=")
        yield name, value


def _filled(value: str, env: Mapping[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: env[found[1]], value)


def copy(root: Path, folder: str, arguments: str) -> None:
    """COPY from the build context, without what Python has left there."""
    words = shlex.split(arguments)
    mode = next((int(word[8:], 8) for word in words if word.startswith("--chmod=")), None)
    *sources, target = (word for word in words if not word.startswith("--"))
    to = root / (Path(folder) / target).as_posix().strip("/")
    for source in (CONTEXT / each for each in sources):
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, to, dirs_exist_ok=True, ignore=ignored)
            continue
        place = to / source.name if target.endswith("/") else to
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
        if mode is not None:
            place.chmod(mode)


def make_root(root: Path) -> None:
    """A Debian with Python in the place of the base image."""
    if not (root / "usr/bin/python3").exists():
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root))
    for file in OURS:
        shutil.copy(file, root / file.lstrip("/"))
    run("chroot", str(root), "python3", "-m", "venv", PYTHON)


def run(*command: str, env: Mapping[str, str] | None = None) -> None:
    subprocess.run(command, check=True, env=env)


Started = subprocess.Popen[bytes]


class Containers:
    """Starts programs of the image as a container engine would."""

    def __init__(self, root: Path, image: Image) -> None:
        self._root = root
        self._image = image

    def command(self, *words: str) -> list[str]:
        user, group = self._image.user.split(":")
        mounts = (
            f"mount --bind {self._root} {self._root}; mount -o remount,ro,bind {self._root}; "
            f"mount -t tmpfs tmpfs {self._root}/tmp; mount --bind /proc {self._root}/proc; "
            f"mount --bind /dev {self._root}/dev; "
        )
        unprivileged = (
            f"setpriv --reuid={user} --regid={group} --clear-groups --no-new-privs "
            "--bounding-set=-all --inh-caps=-all"
        )
        inside = f"exec chroot {self._root} {unprivileged} {shlex.join(words)}"
        return ["unshare", "--mount", "sh", "-ec", mounts + inside]

    @property
    def environment(self) -> Mapping[str, str]:
        return {**self._image.env, "REDIS_URL": BROKER}

    def call(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command, env = self.command(*words), self.environment
        return subprocess.run(
            command, check=False, env=env, input=given, text=True, capture_output=True
        )

    @contextmanager
    def running(self, *words: str) -> Iterator[Started]:
        with subprocess.Popen(self.command(*words), env=self.environment) as process:
            try:
                yield process
            finally:
                process.terminate()
                process.wait()


@contextmanager
def redis() -> Iterator[None]:
    """A broker on this machine."""
    port = BROKER.rpartition(":")[2].partition("/")[0]
    with subprocess.Popen(["redis-server", "--port", port, "--save", ""]) as server:
        try:
            yield
        finally:
            server.terminate()


def await_health(containers: Containers, health: list[str], *started: Started) -> None:
    """Until the health check passes, and what was started still runs."""
    end = time.monotonic() + READY_SECONDS
    while (found := containers.call(*health)).returncode:
        if time.monotonic() > end:
            sys.exit(f"the health check fails: {found.stderr}")
        time.sleep(1)
    for process in started:
        if process.poll() is not None:
            sys.exit(f"what was started has ended with {process.returncode}")


def main() -> None:
    root = Path(sys.argv[1]).absolute() / "root"
    root.mkdir(parents=True, exist_ok=True)
    make_root(root)
    image = build(root, CONTEXT / "deploy" / "Dockerfile")
    config = root / image.cmd[-1].lstrip("/")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(CONFIG)
    containers = Containers(root, image)
    request = '{"model": "sim", "prompt": "Say hello", "max_tokens": 4}'
    with (
        redis(),
        containers.running(*image.entrypoint, *POOL) as pool,
        containers.running(*image.entrypoint, *image.cmd) as daemon,
    ):
        await_health(containers, image.health, pool, daemon)
        sent = containers.call(
            *image.entrypoint, "submit", "--deadline", "1m", "--wait", given=request
        )
        if sent.returncode:
            sys.exit(f"the request failed: {sent.stderr}")
        daemon.terminate()
        if daemon.wait():
            sys.exit(f"the daemon ended with {daemon.returncode}")
    if containers.call("touch", "/written").returncode == 0:
        sys.exit("the root file system can be written")
    print("the image's steps work, and so does what it starts")


if __name__ == "__main__":
    main()
