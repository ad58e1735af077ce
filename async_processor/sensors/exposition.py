"""Picks the samples of one metric out of a page in Prometheus' text format.

A page has hundreds of lines and a gate wants one: lines of other metrics are skipped unparsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from async_processor.errors import AsyncProcessorError

_LABEL: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|(?=\}))')
_VALUE: Final = re.compile(r"\s*(\S+)(?:\s+-?\d+)?\s*")
_FIRST_LINE: Final = re.compile(
    r"#|(?:[a-z_:][a-z0-9_:]*)?(?:\{.*\})?[ \t]+"
    r"[-+]?(?:[0-9.][-+0-9.e]*|nan|inf)(?:[ \t]+-?\d+)?\s*(?:\n|$)",
    re.IGNORECASE,
)
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n"}


class NotExposition(AsyncProcessorError):
    """The page is not in Prometheus' text format."""


def values(page: str, metric: str, labels: Mapping[str, str]) -> list[float]:
    """The values of every series of `metric` that carries `labels` (and maybe more).

    Raises:
        NotExposition: the page, or one of the metric's lines, is in another format.
    """
    _check_beginning(page)
    return [
        _value(line[end:], line)
        for line in page.split("\n")
        if line.startswith(metric)
        for found, end in _labels_of(line, len(metric))
        if labels.items() <= found.items()
    ]


def _check_beginning(page: str) -> None:
    """An error page with status 200 must not pass for a page without the series."""
    beginning = page.lstrip()
    if beginning and not _FIRST_LINE.match(beginning):
        raise NotExposition(f"begins with {beginning[:20]!r}, which is no metrics page")


def _labels_of(line: str, start: int) -> Iterator[tuple[dict[str, str], int]]:
    """The labels and where they end; nothing when the line is another metric's."""
    if line[start : start + 1].isspace():
        yield {}, start
    elif line.startswith("{", start):
        yield _labels(line, start + 1)


def _labels(line: str, position: int) -> tuple[dict[str, str], int]:
    labels: dict[str, str] = {}
    while match := _LABEL.match(line, position):
        labels[match[1]] = _ESCAPE.sub(lambda m: _ESCAPED.get(m[1], m[1]), match[2])
        position = match.end()
    rest = line[position:].lstrip()
    if not rest.startswith("}"):
        raise NotExposition(f"has labels that cannot be read: {line[:80]!r}")
    return labels, len(line) - len(rest) + 1


def _value(text: str, line: str) -> float:
    match = _VALUE.fullmatch(text)
    try:
        return float(match[1]) if match else float("")
    except ValueError:
        raise NotExposition(f"has a value that cannot be read: {line[:80]!r}") from None
