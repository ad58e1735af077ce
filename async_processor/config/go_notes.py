"""What the log is told about the Go implementation's flags: which have no effect, which are old."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from async_processor.config.go_documents import Notes
from async_processor.config.go_flags import DEPRECATED, LOGGING, Flags
from async_processor.fields import without_password

ZERO: Final = ("0", "0s")
"""A duration flag that is turned off."""

_NEW_TRANSPORT: Final = ("transport", "transport-config", "transport-config-file")


def notes_on(flags: Flags) -> Notes:
    """A sentence for each group of flags that do not do what they did."""
    notes = []
    if ignored := _ignored(flags):
        notes.append(f"{_listed(ignored)}: ignored, for --transport or --transport-config is given")
    if flags.get("metrics-endpoint-auth"):
        notes.append("--metrics-endpoint-auth is ignored: server.bearer_token protects /metrics")
    notes += [
        f"--{name} is ignored: files are looked at every few seconds"
        for name in flags
        if name.endswith("config-watch-interval") and flags[name] not in ZERO
    ]
    if flags.get("redis-tracing"):
        notes.append("--redis-tracing is ignored: Redis commands are not traced")
    if any(name in LOGGING and name != "v" for name in flags):
        notes.append("--zap-* flags are ignored")
    return notes


def deprecations(flags: Flags) -> Notes:
    """What `run` says about old flags that it obeys; whoever migrates is rid of them."""
    ignored = _ignored(flags)
    obeyed = [name for name in flags if name in DEPRECATED and name not in ignored]
    if not obeyed:
        return []
    way_out = "`async-processor config migrate` prints the YAML for it"
    return [f"{_listed(obeyed)}: deprecated, still obeyed; {way_out}"]


def exposures(flags: Flags) -> Notes:
    """What `run` says about secrets that do not belong on a command line."""
    shown = [name for name, value in flags.items() if _holds_password(value)]
    if not shown:
        return []
    way_out = "set REDIS_URL instead, or ${NAME} in a --config file"
    return [f"{_listed(shown)}: holds a password, which `ps` shows to everybody here; {way_out}"]


def verbosity(flags: Flags) -> Notes:
    """What whoever migrates has to know of `-v`, which stays a flag."""
    if "v" not in flags:
        return []
    return [f"-v={flags['v']} is not in the file: give it to run, beside --config"]


def _ignored(flags: Flags) -> list[str]:
    """Deprecated flags that the new ones replace."""
    return [
        name
        for name in flags
        if name in DEPRECATED and has_new_transport(flags) and _is_transport(name)
    ]


def _holds_password(value: object) -> bool:
    return isinstance(value, str) and without_password(value) != value


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"--{name}" for name in names)


def has_new_transport(flags: Flags) -> bool:
    """Whether the transport is chosen by the flags that replaced the deprecated ones."""
    return any(name in flags for name in _NEW_TRANSPORT)


def _is_transport(deprecated: str) -> bool:
    return not deprecated.startswith("request-merge-policy")
