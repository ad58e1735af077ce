"""What stands below the fields of a class, read from its source: only the schema asks for it, and a
start need not parse every class of the settings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise


def field_docs(model: type, root: type) -> Mapping[str, str]:
    """The docstrings of a class's fields, and of those that it has from its bases below `root`."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, root) and each is not root:
            found |= _own_docs(each)
    return found


def _own_docs(model: type) -> Iterator[tuple[str, str]]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101
    for field, below in pairwise(definition.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
