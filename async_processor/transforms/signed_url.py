"""When a signed URL of Google Cloud Storage ends.

V4 URLs say when they were signed (`X-Goog-Date`) and for how many seconds (`X-Goog-Expires`), V2
URLs the moment itself (`Expires`, Unix seconds).
https://cloud.google.com/storage/docs/access-control/signed-urls
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl, urlsplit

_SIGNED_AT: Final = "%Y%m%dT%H%M%SZ"


def ends_at(url: str) -> float | None:
    """Unix time in seconds; None when the URL does not say."""
    try:
        return _end(dict(parse_qsl(urlsplit(url).query)))
    except (ValueError, OverflowError):
        return None


def _end(parameters: Mapping[str, str]) -> float | None:
    signed_at, seconds = parameters.get("X-Goog-Date"), parameters.get("X-Goog-Expires")
    if signed_at and seconds:
        begin = datetime.strptime(signed_at, _SIGNED_AT).replace(tzinfo=UTC)
        return begin.timestamp() + int(seconds)
    expires = parameters.get("Expires")
    return float(int(expires)) if expires else None
