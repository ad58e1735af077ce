"""Variables in the configuration: filled in after parsing, and never more than one value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.config.environment import Substitution, escaped

texts = st.text(st.characters(codec="utf-8"))


def filled(text: str, **environ: str) -> Any:
    substitution = Substitution(environ)
    document = substitution.document({"key": text})
    assert not substitution.problems
    return document["key"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${NAME}", "value"),
        ("a${NAME}b${NAME}", "avaluebvalue"),
        ("${NAME:-other}", "value"),
        ("${UNSET:-other}", "other"),
        ("${UNSET:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-other}", "other"),
        ("${UNSET:-redis://h:1/0}", "redis://h:1/0"),
        ("$${NAME}", "${NAME}"),
        ("$NAME $", "$NAME $"),
        ("$$", "$$"),
    ],
)
def test_variables_are_filled_in(text: str, value: str) -> None:
    assert filled(text, NAME="value", EMPTY="") == value


def test_what_a_variable_holds_is_not_looked_at_again() -> None:
    assert filled("${A}", A="${B}", B="x") == "${B}"


def test_only_values_are_filled_in_and_only_texts() -> None:
    substitution = Substitution({"A": "x"})
    document = substitution.document({"${A}": ["${A}", 1, None, {"k": "${A}"}]})
    assert document == {"${A}": ["x", 1, None, {"k": "x"}]}


@given(texts)
def test_a_value_cannot_bring_in_structure(value: str) -> None:
    document = Substitution({"A": value}).document({"a": "${A}", "b": {"c": ["${A}"]}})
    assert document == {"a": value, "b": {"c": [value]}}


@given(texts)
def test_an_escaped_text_comes_out_as_it_was(text: str) -> None:
    assert filled(escaped(text)) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${UNSET}", "${UNSET}: the variable UNSET is not set and has no default"),
        ("${1x}", "'${' must be ${NAME} or ${NAME:-default}; write $${ for the text ${"),
        ("${A", "'${' must be ${NAME} or ${NAME:-default}; write $${ for the text ${"),
        ("${A:=x}", "'${' must be ${NAME} or ${NAME:-default}; write $${ for the text ${"),
    ],
)
def test_what_cannot_be_filled_in_is_a_problem_with_its_path(text: str, problem: str) -> None:
    substitution = Substitution({"A": "x"})
    substitution.document({"a": {"b": ["ok", text]}})
    assert [str(each) for each in substitution.problems] == [f"a.b[1]: {problem}"]


@pytest.mark.parametrize(
    ("value", "environ", "kept"),
    [
        ("Bearer ${KEY}", {"KEY": "k"}, "Bearer k"),
        ("Bearer ${KEY}", {"KEY": ""}, None),
        ("Bearer ${KEY:-}", {}, None),
        ("${A:-}${B:-}", {"B": "b"}, "b"),
        ("${A:-}${B:-}", {}, None),
        ("${A:-default}", {}, "default"),
        ("$${A}", {}, "${A}"),
        ("", {}, ""),
        ("plain", {}, "plain"),
    ],
)
def test_a_header_whose_variables_are_all_empty_is_not_set(
    value: str, environ: dict[str, str], kept: str | None
) -> None:
    document = {"inference": {"headers": {"Authorization": value, "X-Other": "x"}}}
    headers = Substitution(environ).document(document)["inference"]["headers"]
    assert headers == ({"X-Other": "x"} | ({} if kept is None else {"Authorization": kept}))


def test_an_unset_variable_of_a_header_is_a_problem_like_everywhere() -> None:
    substitution = Substitution({})
    substitution.document({"inference": {"headers": {"Authorization": "Bearer ${KEY}"}}})
    assert [each.path for each in substitution.problems] == ["inference.headers.Authorization"]
