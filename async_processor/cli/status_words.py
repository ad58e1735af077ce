"""Says in words why a queue does not move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from async_processor.cli.daemon_status import Asked, ToldProcess, ToldQueue
from async_processor.redis_io.queue_report import QueueReport


def why(report: QueueReport, told: ToldQueue | None, *, silent: str = "") -> str:
    """What holds the queue back; empty when nothing does, or when it is empty.

    `told` is what the daemon says about this queue, None where it was not heard; `silent` is the
    URL of a daemon that was asked and did not answer.
    """
    if told and told.why:
        return told.why
    if report.leased > report.leases_ended:
        return _abandoned(report, silent) if silent else ""
    if report.waiting:
        return _waiting(report, heard=told is not None, silent=silent)
    if report.leases_ended:
        return _silent(report.leases_ended)
    if report.parked:
        return _parked(report.parked, heard=told is not None, silent=silent)
    return ""


def notes(reports: Sequence[QueueReport], asked: Asked) -> Iterator[str]:
    """What concerns no single queue: retries and dead letters are those of all of them."""
    if asked.fault:
        yield asked.fault
    elif asked.told is None:
        yield from _unwatched(reports)
    else:
        yield from _not_ready(asked.told.processes)
    for report in reports[:1]:
        yield from _of_all_queues(report, heard=asked.told is not None)
    for report in reports:
        yield from _stranded(report)


def _not_ready(processes: Sequence[ToldProcess]) -> Iterator[str]:
    for process in processes:
        if not process.ready:
            yield f"process {process.process} of {len(processes)} is not ready: {process.why}"


def _unwatched(reports: Sequence[QueueReport]) -> Iterator[str]:
    """Nobody was asked, so a lease may be a living daemon's or a dead one's."""
    ends = [
        report.next_lease_end - report.now
        for report in reports
        if report.next_lease_end is not None
    ]
    if ends:
        yield (
            f"leased requests go back, the first in {span(min(ends))}, unless their daemon still "
            "runs (--daemon URL asks it)"
        )


def _of_all_queues(report: QueueReport, *, heard: bool) -> Iterator[str]:
    if report.retries:
        yield f"all queues: {_retries(report, heard=heard)}"
    if report.dead_letters:
        letters = _count(report.dead_letters, "dead letter", "dead letters")
        yield f"all queues: {letters}; async-processor dead-letter list shows them"


def _stranded(report: QueueReport) -> Iterator[str]:
    if report.stranded:
        letters = _count(report.stranded, "dead letter", "dead letters")
        yield (
            f"{report.queue_name}: {letters} stranded, for the dead-letter queue is no list or may "
            "not be written; a daemon moves them there once that is mended"
        )


def _retries(report: QueueReport, *, heard: bool) -> str:
    retries = _count(report.retries, "retry", "retries")
    if report.retries_due:
        nobody = "" if heard else ": if that stays so, no daemon runs"
        return f"{retries}, {report.retries_due} of them due{nobody}"
    wait = 0.0 if report.next_retry is None else report.next_retry - report.now
    return f"{retries} not due yet, the next in {span(wait)}"


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


def _abandoned(report: QueueReport, silent: str) -> str:
    """Leases stand, and the daemon that was asked is away: others may be there or not."""
    held = _count(report.leased - report.leases_ended, "lease stands", "leases stand")
    left = 0.0 if report.next_lease_end is None else report.next_lease_end - report.now
    return (
        f"{held}, and no daemon answers at {silent}: those that no other daemon extends go back, "
        f"the first in {span(left)}"
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
