"""The name that a tenant counts under, whatever its requests call it."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

LONGEST_NAME: Final = 200
"""Bytes. A longer name counts under its digest, so that keys stay short."""


def canonical(name: str) -> str:
    """The name that is counted under."""
    encoded = name.encode(errors="surrogatepass")
    if len(encoded) <= LONGEST_NAME:
        return name
    return f"digest-{blake2b(encoded, digest_size=16).hexdigest()}"
