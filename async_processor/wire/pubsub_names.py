"""Names of topics and subscriptions: the ids that people write, and Pub/Sub's full names."""

from __future__ import annotations


def topic(name: str, project_id: str) -> str:
    """The full name of a topic."""
    return _full(name, "topics", project_id)


def subscription(name: str, project_id: str) -> str:
    """The full name of a subscription."""
    return _full(name, "subscriptions", project_id)


def _full(name: str, kind: str, project_id: str) -> str:
    return name if "/" in name else f"projects/{project_id}/{kind}/{name}"


def short(name: str) -> str:
    """The last part of a name."""
    return name.rpartition("/")[2]


def same(one: str, other: str) -> bool:
    """Whether two full names mean the same: a project has an id and a number, which may stand for
    each other."""
    if short(one) != short(other):
        return False
    projects = {name.split("/")[1] if "/" in name else "" for name in (one, other)}
    return len(projects) == 1 or any(project.isdecimal() for project in projects)


def project_of(name: str) -> str:
    """The project of a full name."""
    return name.split("/")[1]
