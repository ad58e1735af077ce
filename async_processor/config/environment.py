"""`${NAME}` and `${NAME:-default}` in values, after the file was parsed.

A value from the environment is text and stays the text of one value: it can bring in no keys and
no lists. `$${` writes a literal `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from async_processor.config.wording import step
from async_processor.errors import Problem

_REFERENCE: Final = re.compile(
    r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{"
)


class Substitution:
    """Fills the variables in; collects what cannot be filled in `problems`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[Problem] = []

    def document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The document with every variable replaced, and without headers that came out empty."""
        headers = document.get("inference")
        filled = self._section(document, "")
        if isinstance(headers, Mapping) and isinstance(headers.get("headers"), Mapping):
            kept = self._kept_headers(headers["headers"], filled["inference"]["headers"])
            filled["inference"]["headers"] = kept
        self._check_token(document.get("server"), filled.get("server"))
        return filled

    def _check_token(self, written: Any, filled: Any) -> None:
        """An empty token opens what it should guard; only a default may say that this is meant."""
        if not isinstance(written, Mapping) or filled.get("bearer_token") != "":
            return
        matches = _REFERENCE.finditer(str(written["bearer_token"]))
        if any(match["name"] and match["default"] is None for match in matches):
            message = "its variables are empty, and without a token everybody may read /status"
            self._fault("server.bearer_token", message)

    def _value(self, value: Any, path: str) -> Any:
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, Mapping):
            return self._section(value, path)
        if isinstance(value, list):
            return [self._value(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return value

    def _section(self, section: Mapping[str, Any], path: str) -> dict[str, Any]:
        for key in section:
            if "${" in str(key):
                self._fault(step(path, key), "variables are filled in in values only, not in keys")
        return {key: self._value(item, step(path, key)) for key, item in section.items()}

    def _text(self, text: str, path: str) -> str:
        return _REFERENCE.sub(lambda match: self._filled(match, path), text)

    def _filled(self, match: re.Match[str], path: str) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match["name"], match["default"]
        if name is None:
            self._fault(path, "'${' must be ${NAME} or ${NAME:-default}; write $${ for the text ${")
            return match[0]
        if name in self._environ and (self._environ[name] or default is None):
            return self._environ[name]
        if default is None:
            self._fault(path, f"{match[0]}: the variable {name} is not set and has no default")
            return match[0]
        return str(default)

    def _fault(self, path: str, message: str) -> None:
        self.problems.append(Problem(path=path, message=message))

    def _kept_headers(
        self, written: Mapping[str, Any], filled: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {name: value for name, value in filled.items() if not self._all_empty(written[name])}

    def _all_empty(self, written: Any) -> bool:
        """Whether the value has variables and every one of them is empty."""
        if not isinstance(written, str):
            return False
        values = [
            self._environ.get(match["name"]) or match["default"] or ""
            for match in _REFERENCE.finditer(written)
            if match["name"] and (match["name"] in self._environ or match["default"] is not None)
        ]
        return bool(values) and not any(values)


def escaped(text: str) -> str:
    """The text as it must be written so that nothing in it is taken for a variable."""
    return text.replace("${", "$${")
