"""Names of what is kept in Google Cloud."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Final

from pydantic import AfterValidator, Field

_ID: Final = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}")
_PROJECT: Final = re.compile(r"projects/[^/\s]+")
_PROJECT_ID: Final = re.compile(r"[a-z][a-z0-9\-:.]*[a-z0-9]")


def _name(kind: str, name: str) -> str:
    if not name or _ID.fullmatch(name):
        return name
    project, _, short_name = name.partition(f"/{kind}/")
    if _PROJECT.fullmatch(project) and _ID.fullmatch(short_name):
        return name
    raise ValueError(
        "must be 3 to 255 letters, digits and -_.~+%, beginning with a letter and not with goog, "
        f"or in full, projects/<project>/{kind}/<id>"
    )


def _project(name: str) -> str:
    if not _PROJECT_ID.fullmatch(name):
        raise ValueError("must be the id of a project: lower-case letters, digits and hyphens")
    return name


CloudProject = Annotated[str, AfterValidator(_project)]
"""The id of a Google Cloud project."""
OptionalTopicName = Annotated[str, AfterValidator(partial(_name, "topics"))]
"""A Pub/Sub topic, its id or its full name; may be empty."""
TopicName = Annotated[OptionalTopicName, Field(min_length=1)]
"""A Pub/Sub topic, its id or its full name."""
SubscriptionName = Annotated[
    str, Field(min_length=1), AfterValidator(partial(_name, "subscriptions"))
]
"""A Pub/Sub subscription, its id or its full name."""
