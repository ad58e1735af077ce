"""Fault switches turn what they name, refuse what they do not know, and repeat under a seed."""

from __future__ import annotations

import pytest

from async_processor.sim.faults import NO_FAULTS, Fault, FaultPanel, Faults, FaultSwitch


def test_nothing_befalls_a_call_unless_switched_on() -> None:
    assert FaultSwitch().draw() is None


def test_a_share_of_one_befalls_every_call_and_clear_ends_it() -> None:
    switch = FaultSwitch()
    switch.set(hang=1)
    assert {switch.draw() for _ in range(20)} == {Fault.HANG}
    switch.clear()
    assert switch.draw() is None


def test_a_share_befalls_about_its_part_and_repeats_under_the_same_seed() -> None:
    draws = []
    for _ in range(2):
        switch = FaultSwitch(Faults(error=0.3), seed=7)
        draws.append([switch.draw() for _ in range(1000)])
    assert draws[0] == draws[1]
    assert 250 < draws[0].count(Fault.ERROR) < 350


def test_switches_that_are_not_named_stay_as_they_are() -> None:
    switch = FaultSwitch(Faults(error=0.5, error_status=503))
    switch.set(added_latency=0.2)
    assert switch.now == Faults(error=0.5, error_status=503, added_latency=0.2)


@pytest.mark.parametrize("switches", [{"hang": 2}, {"explode": 1}, {"error_status": 200}])
def test_a_wrong_switch_is_refused_and_changes_nothing(switches: dict[str, int]) -> None:
    switch = FaultSwitch()
    with pytest.raises(ValueError, match=r"Expected|unknown field"):
        switch.update(switches)
    assert switch.now == NO_FAULTS


def test_a_panel_turns_every_switch() -> None:
    switches = [FaultSwitch(), FaultSwitch()]
    panel = FaultPanel(switches)
    panel.set(reset=1)
    assert [switch.draw() for switch in switches] == [Fault.RESET, Fault.RESET]
    panel.clear()
    assert panel.as_list() == [NO_FAULTS, NO_FAULTS]
