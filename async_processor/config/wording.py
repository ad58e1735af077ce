"""How errors write keys, names and values: in one line, not too long, without secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from async_processor.fields import without_password

LONGEST: Final = 80
"""Characters of a key or a value that an error shows."""
_MOST_NAMES: Final = 20
_YAML_WORDS: Final = {None: "null", True: "true", False: "false"}


def quoted(value: Any) -> str:
    """A value as it stands in the file, more or less."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    word = value is None or isinstance(value, bool)
    return _cut(without_password(_YAML_WORDS[value] if word else repr(value)))


def plain(name: object) -> str:
    """A name without quotes, where it needs none."""
    text = str(name)
    return _cut(text if text and text.isprintable() else repr(text))


def listed(names: Iterable[object]) -> str:
    """Several names."""
    texts = [plain(name) for name in names]
    return ", ".join(texts if len(texts) <= _MOST_NAMES else [*texts[:_MOST_NAMES], "…"])


def step(path: str, key: object) -> str:
    """The path of what stands behind a key."""
    return f"{path}.{plain(key)}" if path else plain(key)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
