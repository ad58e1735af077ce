"""Names series: by metric and labels, the same on a metrics page and in PromQL."""

from __future__ import annotations

import json

import msgspec


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Series of one name that carry these labels."""

    metric: str
    labels: frozenset[tuple[str, str]] = frozenset()

    def __str__(self) -> str:
        """As PromQL writes it, whose string escapes are JSON's."""
        matchers = ",".join(
            f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in sorted(self.labels)
        )
        return f"{self.metric}{{{matchers}}}" if matchers else self.metric
