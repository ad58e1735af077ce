"""The Go implementation's command line: which flags there are, and how Go reads them.

One or two dashes, `--flag value` and `--flag=value`; a switch needs no value. The last of a
repeated flag wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum, auto
from typing import Final

from async_processor.errors import ConfigurationError, Problem
from async_processor.fields import without_password

FlagValue = str | int | bool
Flags = Mapping[str, FlagValue]
"""The flags that were given, by their names."""


class Kind(Enum):
    """How a flag's value is read."""

    TEXT = auto()
    WHOLE = auto()
    SWITCH = auto()
    DURATION = auto()


def _named(kind: Kind, names: str) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), kind)


LOGGING: Final = {
    "v": Kind.WHOLE,
    "zap-devel": Kind.SWITCH,
    **_named(Kind.TEXT, "zap-encoder zap-log-level zap-stacktrace-level zap-time-encoding"),
}
CURRENT: Final = {
    **_named(
        Kind.TEXT,
        "transport transport-config transport-config-file pool-config-file "
        "request-merge-policy-config-file transform-config-file prometheus-url "
        "tls-ca-cert tls-cert tls-key",
    ),
    **_named(Kind.WHOLE, "concurrency health-port metrics-port"),
    **_named(Kind.SWITCH, "metrics-endpoint-auth tls-insecure-skip-verify"),
    **_named(
        Kind.DURATION,
        "request-timeout drain-timeout gate-wait-timeout prometheus-cache-ttl "
        "transport-config-watch-interval metrics-backlog-poll-interval",
    ),
}
DEPRECATED: Final = {
    "message-queue-impl": Kind.TEXT,
    "request-merge-policy": Kind.TEXT,
    "request-merge-policy-config": Kind.TEXT,
    "redis-tracing": Kind.SWITCH,
    **_named(
        Kind.TEXT,
        "redis.url redis.addr redis.igw-base-url redis.request-path-url "
        "redis.inference-objective redis.request-queue-name redis.retry-queue-name "
        "redis.result-queue-name redis.queues-config redis.queues-config-file",
    ),
    **_named(
        Kind.TEXT,
        "redis.ss.addr redis.ss.igw-base-url redis.ss.request-path-url "
        "redis.ss.inference-objective redis.ss.request-queue-name redis.ss.result-queue-name "
        "redis.ss.queues-config redis.ss.queues-config-file redis.ss.gate-type "
        "redis.ss.gate-params",
    ),
    **_named(Kind.WHOLE, "redis.ss.poll-interval-ms redis.ss.batch-size pubsub.batch-size"),
    "redis.ss.queues-config-watch-interval": Kind.DURATION,
    **_named(
        Kind.TEXT,
        "pubsub.project-id pubsub.igw-base-url pubsub.request-path-url "
        "pubsub.inference-objective pubsub.request-subscriber-id pubsub.result-topic-id "
        "pubsub.topics-config-file",
    ),
}
FLAGS: Final[Mapping[str, Kind]] = {"config": Kind.TEXT, **LOGGING, **CURRENT, **DEPRECATED}
"""Every flag that `run` reads; `config` is ours."""

_SWITCHED: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_DURATION: Final = re.compile(r"\+?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_SHORT_VERBOSITY: Final = re.compile(r"-v(\d+)")


def parse(argv: Sequence[str]) -> dict[str, FlagValue]:
    """The flags by name, durations still as text; raises ConfigurationError with every mistake."""
    values: dict[str, FlagValue] = {}
    problems: list[Problem] = []
    for name, text in _split(argv):
        try:
            values[name] = _read(name, text)
        except ValueError as error:
            problems.append(Problem(path=f"--{name}" if name else "run", message=str(error)))
    if problems:
        raise ConfigurationError(problems)
    return values


def _split(argv: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Pairs of a flag's name and its text; None where a switch has none."""
    waiting = list(argv)
    while waiting:
        word = waiting.pop(0)
        short = _SHORT_VERBOSITY.fullmatch(word)
        if short:
            yield "v", short[1]
            continue
        name, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        if not (name and word.startswith("-")):
            yield "", word
        elif equals:
            yield name, text
        elif FLAGS.get(name) is Kind.SWITCH:
            yield name, waiting.pop(0) if waiting and waiting[0] in _SWITCHED else "true"
        else:
            yield name, waiting.pop(0) if waiting and name in FLAGS else None


def _read(name: str, text: str | None) -> FlagValue:
    if not name:
        raise ValueError(f"got {without_password(repr(text))}, which belongs to no flag")
    kind = FLAGS.get(name)
    if kind is None:
        near = get_close_matches(name, FLAGS, n=1)
        hint = f"; did you mean --{near[0]}?" if near else "; see async-processor run --help"
        raise ValueError(f"unknown flag{hint}")
    if text is None:
        raise ValueError("needs a value")
    return _READERS[kind](text)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"got {text!r}, must be a whole number") from None


def _switch(text: str) -> bool:
    if text not in _SWITCHED:
        raise ValueError(f"got {text!r}, must be true or false")
    return _SWITCHED[text]


def _duration(text: str) -> str:
    if not _DURATION.fullmatch(text):
        raise ValueError(f"got {text!r}, must be a duration of 0 or more, like 30s or 1h30m")
    return text.removeprefix("+")


_READERS: Final[Mapping[Kind, Callable[[str], FlagValue]]] = {
    Kind.TEXT: str,
    Kind.WHOLE: _whole,
    Kind.SWITCH: _switch,
    Kind.DURATION: _duration,
}
