"""Reading YAML: what people mean by it, mistakes with file and line, and writing it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.config.yaml_file import LARGEST_FILE, read_file, read_yaml, write_yaml
from async_processor.errors import ConfigurationError

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
documents = st.dictionaries(
    st.text(),
    st.recursive(
        plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
    ),
)
TRICKY = [
    "off",
    "on",
    "yes",
    "no",
    "010",
    "1e3",
    "1.",
    ".5",
    "+1",
    "1:30",
    "2024-01-01",
    "~",
    "null",
    "true",
    "0x10",
    "0o7",
    "<<",
    "=",
    ".inf",
    "1_000",
]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", "off"),
        ("no", "no"),
        ("true", True),
        ("010", 10),
        ("-3", -3),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("5s", "5s"),
        ('"5"', "5"),
        ("~", None),
        ("", None),
        ("1_000", "1_000"),
    ],
)
def test_a_scalar_is_what_it_looks_like(text: str, value: object) -> None:
    read = read_yaml(f"key: {text}", "f")["key"]
    assert (read, type(read)) == (value, type(value))


def test_an_empty_file_is_an_empty_document() -> None:
    assert read_yaml("# nothing\n", "f") == {}


def test_keys_are_texts() -> None:
    assert read_yaml("limits: {1: 2, true: 3}", "f") == {"limits": {"1": 2, "true": 3}}


def test_merged_keys_may_be_overridden() -> None:
    document = read_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}", "f")
    assert document["b"] == {"x": 3, "y": 2}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1: duplicate key 'a'"),
        ("a:\n  - b: 1\n    b: 2\n", "f.yaml:3:5: duplicate key 'b'"),
        ('1: a\n"1": b\n', "f.yaml:2:1: duplicate key '1'"),
        ("? [a, b]\n: c\n", "f.yaml:1:3: a key must be a plain name"),
        ("a: [\n", "f.yaml:2:1: "),
        ("a: b: c", "f.yaml:1:5: mapping values are not allowed here"),
        ("a: !!python/name:os.system x", "f.yaml:1:4: could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: but found another document"),
        ("- a\n", "f.yaml: must be a mapping of keys to values"),
        ("just text", "f.yaml: must be a mapping of keys to values"),
        ("a: \x00", "f.yaml: is not YAML"),
        ("a: " + 5000 * "9", "f.yaml:1:4: a number with too many digits"),
        ("a:\n\tb: 1", "f.yaml:2:1: found character '\\t' that cannot start any token"),
        ("a: 1\n---\n", "f.yaml:2:1: but found another document"),
        ("a: 1\n<<: 5\n", "f.yaml:2:5: expected a mapping or list of mappings for merging"),
    ],
)
def test_mistakes_name_file_and_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_yaml(text, "f.yaml")
    assert str(caught.value).startswith(problem)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.yaml: cannot be read: No such file"):
        read_file(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigurationError, match=r"latin\.yaml: is not UTF-8"):
        read_file(tmp_path / "latin.yaml")


def test_marks_and_line_ends_of_other_systems_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "windows.yaml").write_bytes(b"\xef\xbb\xbfa: 1\r\nb: |\r\n  c\r\n  d\r\n")
    assert read_yaml(read_file(tmp_path / "windows.yaml"), "f") == {"a": 1, "b": "c\nd\n"}


def test_a_file_that_cannot_be_a_configuration_is_not_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_bytes(b"#" * (LARGEST_FILE + 1))
    with pytest.raises(ConfigurationError, match=r"large\.yaml: is larger than 1048576 bytes"):
        read_file(tmp_path / "large.yaml")


@pytest.mark.parametrize("text", TRICKY)
def test_texts_that_look_like_something_else_stay_texts(text: str) -> None:
    document = {"key": text, text: "value", "list": [text]}
    assert read_yaml(write_yaml(document), "f") == document


@given(documents)
def test_what_is_written_is_read_back(document: dict[str, Any]) -> None:
    assert read_yaml(write_yaml(document), "f") == document


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "a: " + "{b: " * 300 + "c" + "}" * 300,
        "a: &a [*a]",
        "a: &a {b: *a}",
        "a0: &a0 [x]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)),
    ],
    ids=["brackets", "deep", "cycle", "cycle of mappings", "bomb"],
)
def test_what_never_ends_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_yaml(text, "config.yaml")
    (problem,) = refused.value.problems
    assert problem.path.startswith("config.yaml")
    assert len(str(problem)) < 200
