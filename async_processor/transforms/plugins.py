"""Transforms of other packages, found by their entry points.

A package offers one in its `pyproject.toml`:

    [project.entry-points."async_processor.request_transforms"]
    my-form = "my_package:make_transform"

`make_transform(parameters)` gets the mapping from the configuration, checks it (its errors stop the
start), and returns a `RequestTransform`, or for the other group a `ResponseTransform`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Final

REQUESTS: Final = "async_processor.request_transforms"
RESPONSES: Final = "async_processor.response_transforms"


def make(group: str, name: str, parameters: Mapping[str, Any]) -> Any:
    """A plugin's transform.

    Raises ValueError when there is no such plugin, or it cannot be made of these parameters.
    """
    points = {point.name: point for point in entry_points(group=group)}
    if name not in points:
        known = ", ".join(sorted(points)) or "none"
        raise ValueError(f"no installed package has the entry point {name!r}; {group}: {known}")
    try:
        return points[name].load()(parameters)
    except Exception as error:
        raise ValueError(f"the transform {name!r} cannot be made: {error!r}") from error
