"""The Prometheus server that gates ask."""

from __future__ import annotations

from async_processor.fields import HttpUrl, Interval, Section


class PrometheusSettings(Section):
    """Where queries go, and for how long an answer is used."""

    url: HttpUrl
    """Base URL of the server, e.g. http://prometheus:9090."""
    cache_ttl: Interval = 5.0
    """Seconds between two queries of the same expression."""
