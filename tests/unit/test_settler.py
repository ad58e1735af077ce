"""The settler counts what the transport says became of an outcome, and nothing else."""

from __future__ import annotations

import pytest

from async_processor.settlement.decision import Decision, Ending
from async_processor.settlement.reaper import RetryPromoter
from async_processor.settlement.settle import Settler
from async_processor.telemetry.metrics import Metrics
from async_processor.testing.flaky import FlakyTransport
from async_processor.testing.memory_probe import memory_probe
from async_processor.testing.stage import answer, claim_one, submit
from async_processor.transport.base import Delivery, Outcome, Settlement, Transport

SUCCESSFUL = "successful_requests_total{"
UNCONFIRMED = "unconfirmed_settlements_total{"
HOMELESS = "dead_letters_total{"


class Answering(FlakyTransport):
    """Says of every settlement what the test wants it to say."""

    def __init__(self, inner: Transport, says: Settlement) -> None:
        super().__init__(inner)
        self._says = says

    async def settle(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        await super().settle(delivery, outcome)
        return self._says


@pytest.mark.parametrize(
    ("says", "took_effect", "counted"),
    [
        (Settlement.DONE, True, {SUCCESSFUL}),
        (Settlement.UNCONFIRMED, True, {SUCCESSFUL, UNCONFIRMED}),
        (Settlement.BURIED, True, {SUCCESSFUL, HOMELESS}),
        (Settlement.GONE, False, set()),
    ],
)
async def test_each_end_of_a_settlement_is_counted_as_what_it_is(
    says: Settlement, took_effect: bool, counted: set[str]
) -> None:
    metrics = Metrics()
    async with memory_probe() as probe:
        transport = Answering(await probe.replica(), says)
        settler = Settler(
            transport, metrics.queue("q", "n", "p"), RetryPromoter(transport), queue_id="q"
        )
        await submit(probe, "a")
        delivery = await claim_one(transport)
        decision = Decision(outcome=answer(delivery), ending=Ending.SUCCEEDED)

        assert await settler.settle(delivery, decision, dispatched=True) is took_effect

    samples = [line for line in metrics.exposition().decode().splitlines() if line.endswith(" 1.0")]
    assert {
        name
        for name in (SUCCESSFUL, UNCONFIRMED, HOMELESS)
        if any(sample.startswith(f"llm_d_async_async_{name}") for sample in samples)
    } == counted
    if says is Settlement.BURIED:
        assert any('reason="no_result_queue"' in sample for sample in samples)
