"""Says in words why a queue does not move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from async_processor.redis_io.queue_report import QueueReport


def why(report: QueueReport, daemon: Mapping[str, Any] | None, *, silent: str = "") -> str:
    """What holds the queue back; empty when nothing does, or when it is empty.

    `daemon` is what the daemon's /status says about this queue, None where it was not heard;
    `silent` is the URL of a daemon that was asked and did not answer.
    """
    if daemon and daemon.get("why"):
        return str(daemon["why"])
    held = report.leased - report.leases_ended
    if held > 0:
        return ""
    if report.waiting:
        return _waiting(report, heard=daemon is not None, silent=silent)
    if report.leases_ended:
        return _silent(report.leases_ended)
    if report.parked:
        return _parked(report.parked, heard=daemon is not None, silent=silent)
    if report.retries and not report.retries_due and report.next_retry is not None:
        wait = span(report.next_retry - report.now)
        return f"{_count(report.retries, 'retry', 'retries')} not due yet, the next in {wait}"
    if report.retries_due and daemon is None:
        return "retries are due and nobody takes them: no daemon seems to run"
    return ""


def warnings(report: QueueReport) -> Iterator[str]:
    """Mistakes that can be seen from outside."""
    if report.in_milliseconds:
        count = _count(report.in_milliseconds, "deadline", "deadlines")
        yield f"{count} in milliseconds: deadlines are Unix seconds, these lie in the far future"


def span(seconds: float) -> str:
    """A duration as people say it."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _waiting(report: QueueReport, *, heard: bool, silent: str) -> str:
    if report.leases_ended:
        return _silent(report.leases_ended)
    if report.expired == report.waiting:
        return "all deadlines have passed and nobody answers: no daemon runs on this queue"
    if heard:
        return "nothing is claimed at this moment"
    if silent:
        return f"nothing is claimed, and no daemon answers at {silent}: none seems to run"
    return (
        "nothing is claimed: no daemon runs on this queue, or its gate is closed "
        "(--daemon URL asks the daemon)"
    )


def _parked(count: int, *, heard: bool, silent: str) -> str:
    parked = _count(count, "request is", "requests are") + " parked until a gate has room"
    if silent and not heard:
        return f"{parked}, and no daemon answers at {silent}: none seems to run"
    return parked


def _silent(count: int) -> str:
    claimed = _count(count, "request was", "requests were")
    return f"{claimed} claimed by a daemon that is silent now; the next daemon takes them back"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
