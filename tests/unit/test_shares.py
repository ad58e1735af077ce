"""Marks keep their order and stay small enough to be told apart, whatever a service costs."""

from __future__ import annotations

from collections import Counter

from async_processor.dispatch.merge.shares import LARGEST_MARK, Shares


def served(shares: Shares, steps: dict[str, float], turns: int) -> Counter[str]:
    counted: Counter[str] = Counter()
    for group in steps:
        shares.join(group, 0.0)
    for _ in range(turns):
        group = min(steps, key=shares.mark)
        shares.serve(group, steps[group])
        counted[group] += 1
    return counted


def test_one_that_was_alone_with_large_costs_leaves_fair_shares_behind() -> None:
    shares = Shares()
    served(shares, {"large": 1e7}, 100_000)
    assert shares.mark("large") <= LARGEST_MARK + 2e7
    shares.leave("large", 0.0)
    assert served(shares, {"a": 1e-3, "b": 2e-3}, 300) == {"a": 200, "b": 100}


def test_whoever_is_present_while_marks_are_counted_anew_keeps_its_turn() -> None:
    shares = Shares()
    costs = {"a": LARGEST_MARK / 10, "b": LARGEST_MARK / 5}
    assert served(shares, costs, 3000) == {"a": 2000, "b": 1000}


def test_a_step_beyond_all_marks_does_not_end_the_shares_of_others() -> None:
    shares = Shares()
    served(shares, {"large": 1e20}, 2)
    assert served(shares, {"a": 1.0, "b": 1.0}, 200) == {"a": 100, "b": 100}
