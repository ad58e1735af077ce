"""What gates, quotas and tiers cost: the throughput's scene with all of them at once.

Three queues, one for each tier, of which the lowest holds the backlog; a saturation gate on each
that the replicas share, read once a second from a pool with nothing to do; and a quota of so many
requests at a time for each of three tenants, which the replicas keep together in Redis. Neither
ever closes: what is measured is the work of asking them.
"""

from __future__ import annotations

from typing import Final

from benchmarks.contender import Contender
from benchmarks.report import Report
from benchmarks.throughput import Load, compared

_CONFIGURATION: Final = """\
transport:
  type: redis-sortedset
  url: {broker}
  result_queue_name: {results}
  queues:
%s
worker_pools:
  - {id: default, workers: {workers}}
merge_policy: {type: tier-priority}
prometheus: {url: "{gateway}", cache_ttl: 1s}
server: {bind: 127.0.0.1, health_port: {health_port}, metrics_port: {metrics_port}}
"""
_QUEUE: Final = """\
    - queue_name: %s
      igw_base_url: {gateway}
      labels: {tier: %s}
      gate:
        type: composite
        gates:
          - {type: prometheus-query, query: "1", fallback: 0, shared: true}
          - {type: redis-quota, attribute: userid, mode: concurrency, limit: {workers}}
"""
_TIERS: Final = {"{queue}": "batch", "empty-1": "async", "empty-2": "interactive"}
_AIMS: Final = (
    "aim: ratio >= 0.45 at 256 workers with a shared saturation gate, a concurrency quota for each"
    " tenant and tier-priority. CPU is seconds per 1,000 requests."
)


async def admission(*, workers: int = 256, requests: int = 10_000, turns: int = 3) -> Report:
    """Compare with the same daemon behind a constant gate, and both with the bare loop."""
    load = Load(workers=workers, requests=requests, turns=turns)
    ways = {"constant gate": Contender(), "gates, quota, tiers": _gated()}
    rows = [{"what": what, **await compared(each, load)} for what, each in ways.items()]
    title = f"Admission: {requests:,} requests of three tenants, {turns} turns"
    return Report(name="admission", title=title, rows=rows, aims=_AIMS)


def _gated() -> Contender:
    queues = "".join(_QUEUE % named for named in _TIERS.items())
    return Contender(configuration=_CONFIGURATION % queues)
