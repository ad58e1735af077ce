"""How many of a pool's places a lane may take, whatever the others have taken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from async_processor.dispatch.merge.places import Places

LANES = 3


@given(
    st.integers(1, 100),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, LANES - 1), st.integers(-50, 50)), max_size=20),
)
def test_each_lane_may_take_what_the_others_neither_take_nor_keep(
    workers: int, least: int, changes: list[tuple[int, int]]
) -> None:
    places, taken = Places(workers=workers, lanes=LANES, least=least), [0] * LANES
    for lane, change in changes:
        places.take(lane, change)
        taken[lane] += change
    kept = max(least, workers // (4 * LANES))
    places_in_all = workers + (LANES - 1) * kept
    for lane in range(LANES):
        others = sum(max(taken[each], kept) for each in range(LANES) if each != lane)
        assert places.left(lane) == places_in_all - others - taken[lane]
