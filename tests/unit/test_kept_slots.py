"""A covered request's slot is kept where surplus of its tenant waits, and only as long."""

from __future__ import annotations

from async_processor.admission.base import Classification
from async_processor.dispatch.kept_slots import KEPT, KeptSlots
from async_processor.dispatch.merge.base import Ready
from async_processor.dispatch.settings import QueueSettings
from async_processor.wire.request import Request

RESERVED, OVERFLOW = Classification.RESERVED, Classification.OVERFLOW
QUEUE = QueueSettings(queue_name="q", igw_base_url="http://x")


def ready(classification: Classification, lot: str = "a") -> Ready:
    request = Request(id="r", deadline=10.0, payload=b"{}")
    return Ready(queue=QUEUE, request=request, since=0.0, classification=classification, lot=lot)


def test_a_slot_is_kept_for_surplus_of_the_same_tenant_and_not_for_long() -> None:
    kept = KeptSlots()
    kept.waits(ready(OVERFLOW, "a"), before=None)
    assert not kept.ended(ready(RESERVED, "b"), 0.0)
    assert not kept.ended(ready(OVERFLOW, "a"), 0.0)
    assert kept.ended(ready(RESERVED, "a"), 0.0)
    assert kept.count(KEPT / 2) == 1
    assert kept.count(KEPT) == 0


def test_surplus_that_is_covered_now_or_gone_keeps_no_slot() -> None:
    kept = KeptSlots()
    now_covered, gone = ready(OVERFLOW), ready(OVERFLOW)
    kept.waits(now_covered, before=None)
    kept.waits(gone, before=None)
    kept.waits(ready(RESERVED), before=now_covered)
    assert kept.ended(ready(RESERVED), 0.0)
    kept.waits_no_more(gone)
    assert not kept.ended(ready(RESERVED), 0.0)


def test_a_look_in_vain_gives_the_slot_to_others() -> None:
    kept = KeptSlots()
    first, again = ready(OVERFLOW), ready(OVERFLOW)
    kept.waits(first, before=None)
    assert kept.ended(ready(RESERVED), 0.0)
    kept.waits(again, before=first)
    assert kept.count(0.0) == 0
    assert kept.ended(ready(RESERVED), 0.0)  # it waits still
