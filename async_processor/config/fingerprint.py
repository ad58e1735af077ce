"""Tells the contents of configuration files apart.

Contents are compared, not times or names, so that the symbolic links of a mounted ConfigMap need
no special care, and a file that is only touched causes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path


def fingerprint(files: Sequence[Path]) -> bytes:
    """Equal for equal contents; what is no file has none (a pipe can be read only once)."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(_contents(file)).digest())
    return digest.digest()


def _contents(file: Path) -> bytes:
    try:
        return file.read_bytes() if file.is_file() else b""
    except OSError as error:
        # While it is being replaced it may be missing; reading it will say so.
        return type(error).__name__.encode()
