"""Names of what is kept somewhere, and paths."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

LONGEST_NAME: Final = 512
"""Characters; a name stands in keys, labels of metrics and lines of logs."""


def _name(text: str) -> str:
    if len(text) > LONGEST_NAME:
        raise ValueError(f"must be a name of {LONGEST_NAME} characters or less")
    if text != text.strip() or not text.isprintable():
        raise ValueError("must be a name without control characters and outer spaces")
    return text


def _url_path(path: str) -> str:
    if not path.startswith("/") or "//" in path or ".." in path.split("/"):
        raise ValueError("must be a path that begins with / and has no // and no ..")
    if any(character <= " " or character == "\x7f" for character in path):
        raise ValueError("must be a path without spaces and control characters")
    if "#" in path:
        raise ValueError("must be a path without a fragment, which is never sent")
    return path


NonEmpty = Annotated[str, Field(min_length=1)]
"""A text that is not empty."""
OptionalName = Annotated[str, AfterValidator(_name)]
"""What a queue, a key, a pool is called; may be empty."""
Name = Annotated[str, Field(min_length=1), AfterValidator(_name)]
"""What a queue, a key, a pool is called."""
UrlPath = Annotated[str, AfterValidator(_url_path)]
"""A path on the inference gateway."""
