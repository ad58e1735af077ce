"""A running daemon outlives what an operator can break and mend again: a key of the wrong type,
a changed password, a lost permission."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from async_processor.errors import BrokerRefused, BrokerUnavailable

P = ParamSpec("P")
T = TypeVar("T")


def passing(
    method: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make a refusal BrokerUnavailable: worth a warning and another try, not the daemon's end."""

    @wraps(method)
    async def patient(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except BrokerRefused as error:
            raise BrokerUnavailable(str(error)) from error

    return patient
