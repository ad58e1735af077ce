"""Earliest deadline first, also among those who leave early, and none of these is kept alive."""

from __future__ import annotations

import weakref

from hypothesis import given
from hypothesis import strategies as st

from async_processor.ranking import Ranking


class Item:
    """Something that can be told dead from alive."""


def emptied(ranking: Ranking[int]) -> list[int]:
    found = []
    while ranking:
        found.append(ranking.first())
        assert ranking.discard(found[-1])
    return found


@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=200))
def test_whoever_stays_comes_up_by_deadline_and_then_by_arrival(
    steps: list[tuple[int, int]],
) -> None:
    ranking: Ranking[int] = Ranking()
    here: dict[int, int] = {}
    for number, (kind, deadline) in enumerate(steps):
        if kind and here:
            leaver = list(here)[deadline % len(here)]
            assert ranking.discard(leaver)
            assert not ranking.discard(leaver)
            del here[leaver]
            if kind == 1:
                ranking.add(leaver, deadline)  # and is back
                here[leaver] = deadline
        else:
            ranking.add(number, deadline)
            here[number] = deadline
        assert len(ranking) == len(here)
    arrivals = list(here)
    assert emptied(ranking) == sorted(here, key=lambda item: (here[item], arrivals.index(item)))


def test_who_left_behind_the_first_is_not_kept_alive() -> None:
    ranking: Ranking[Item] = Ranking()
    first = Item()
    ranking.add(first, 1.0)
    left = weakref.WeakSet[Item]()
    for _ in range(1000):
        item = Item()
        left.add(item)
        ranking.add(item, 2.0)
        ranking.discard(item)
        del item
    assert len(left) <= 12
    assert ranking.first() is first
