"""Whose quota a request counts under, and how large that quota is (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from async_processor.wire.request import Request
from async_processor.wire.tenants import canonical

_REMEMBERED: Final = 4096


class Tenants:
    """Reads the attribute that names a tenant.

    `limits` holds names and patterns with `*`. A tenant's own name comes before patterns, the
    longest pattern first; each tenant that a pattern names has the whole limit to itself. Whom
    `limits` does not name gets `default`; None: no limit.
    """

    def __init__(self, attribute: str, *, default: int | None, limits: Mapping[str, int]) -> None:
        self.attribute = attribute
        self._default = default
        self._names = {canonical(name): limit for name, limit in limits.items() if "*" not in name}
        patterns = sorted((name for name in limits if "*" in name), key=len, reverse=True)
        self._patterns = {pattern: limits[pattern] for pattern in patterns}
        self.limit = lru_cache(_REMEMBERED)(self._limit)
        """How much a tenant may use; None: it has no limit."""

    def of(self, request: Request) -> str:
        """The tenant's name; empty when the request names none."""
        return canonical(request.metadata.get(self.attribute, ""))

    def _limit(self, tenant: str) -> int | None:
        if tenant in self._names:
            return self._names[tenant]
        for pattern, limit in self._patterns.items():
            if fnmatchcase(tenant, pattern.replace("[", "[[]").replace("?", "[?]")):
                return limit
        return self._default
