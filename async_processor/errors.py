"""The error tree: every error that crosses a module's border is one of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class AsyncProcessorError(Exception):
    """Something in the processor went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake in a configuration: where it is, what stands there, and what is allowed."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ConfigurationError(AsyncProcessorError):
    """The configuration is wrong; `problems` lists every mistake found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class BrokerUnavailable(AsyncProcessorError):
    """The broker cannot be reached or cannot serve now; trying again later may work."""


class BacklogUnknown(BrokerUnavailable):
    """The broker can be reached, and does not tell how much waits."""


class BrokerRefused(AsyncProcessorError):
    """The broker answers, and will give the same answer to every retry of this command."""
