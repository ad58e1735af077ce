"""Texts that should be JSON, as the Go implementation writes inner gates."""

from __future__ import annotations

import json


def json_fault(text: str) -> str:
    """Where and why a text that looks like a JSON list or object is none; empty when it is one."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"as JSON it is broken at line {error.lineno}, column {error.colno}: {error.msg}"
    except (ValueError, RecursionError):
        return "as JSON it is nested too deeply, or has a number that is too long"
    return ""


def looks_like_json(value: object) -> bool:
    """Whether somebody meant a JSON list or object."""
    return isinstance(value, str) and value.lstrip().startswith(("[", "{"))
