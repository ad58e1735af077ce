"""The help of `run`: our own options, and Go's flags in groups.

Only help comes here by way of typer; without it `main` runs the daemon itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import Final

import typer

from async_processor.config.go_flags import FLAGS

OWN: Final = {
    "--config FILE": "the configuration, in YAML; beside it only -v says anything",
    "-v N": "how much is logged; from 4 on every outcome, default: 2",
}
GROUPS: Final = {
    "The broker and its queues, as JSON": "transport transport-config transport-config-file "
    "transport-config-watch-interval metrics-backlog-poll-interval",
    "Workers and how queues share them": "concurrency pool-config-file "
    "request-merge-policy-config-file",
    "Calls of the gateway": "request-timeout transform-config-file tls-ca-cert tls-cert tls-key "
    "tls-insecure-skip-verify",
    "Gates": "prometheus-url prometheus-cache-ttl gate-wait-timeout",
    "Ports and the stop": "health-port metrics-port metrics-endpoint-auth drain-timeout",
    "Logging, of which only the first has an effect": "v zap-devel zap-encoder zap-log-level "
    "zap-stacktrace-level zap-time-encoding",
}
"""Go's flags that are not deprecated, by what they are about."""

_WIDTH: Final = 98


def run(context: typer.Context) -> None:
    """Run the daemon until SIGTERM or SIGINT; a second one gives everything back at once.

    Example: async-processor run --config config.yaml
    """
    typer.echo(context.get_help())
    typer.echo("\n".join(_lines()))


def _lines() -> Iterator[str]:
    yield "Options:"
    for option, meaning in OWN.items():
        yield f"  {option:<14} {meaning}"
    yield ""
    yield "The flags of llm-d-async instead of --config; config migrate prints the YAML for them:"
    for title, names in GROUPS.items():
        yield from _group(title, names.split())
    grouped = {name for names in GROUPS.values() for name in names.split()}
    yield from _group("Deprecated", [n for n in FLAGS if n not in {*grouped, "config"}])


def _group(title: str, names: Iterable[str]) -> Iterator[str]:
    yield f"  {title}:"
    listed = " ".join(("-" if name == "v" else "--") + name for name in names)
    yield from wrap(
        listed,
        _WIDTH,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
