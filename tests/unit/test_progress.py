"""A command that takes long says so on standard error, also where that is no terminal."""

from __future__ import annotations

import pytest

from async_processor.cli.progress import progress_bar
from async_processor.testing.eventually import eventually


async def test_without_a_terminal_lines_tell_how_far_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = ""

    async def told() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return "results: 1 of 3\n" in said

    async with progress_bar("results", 3, interval=0.01) as bar:
        bar.advance()
        await eventually(told)
    assert set(said.splitlines()) == {"results: 1 of 3"}


async def test_what_is_done_at_once_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with progress_bar("requests", None) as bar:
        bar.advance()
    assert capsys.readouterr().err == ""
