"""Makes the merge policy that a configuration names, one for each pool."""

from __future__ import annotations

from async_processor.dispatch.merge import cost
from async_processor.dispatch.merge.base import MergePolicy
from async_processor.dispatch.merge.random_robin import RandomRobin
from async_processor.dispatch.merge.tier_priority import TierPriority
from async_processor.dispatch.merge.weighted_fair import WeightedFair
from async_processor.dispatch.settings import (
    CostUnit,
    MergeSettings,
    RandomRobinPolicy,
    TierPriorityPolicy,
    WeightedFairPolicy,
)

_COSTS = {CostUnit.REQUESTS: cost.one, CostUnit.TOKENS: cost.tokens}


def build_merge_policy(settings: MergeSettings, *, workers: int) -> MergePolicy:
    """The policy of a pool with so many workers."""
    match settings:
        case RandomRobinPolicy():
            return RandomRobin()
        case TierPriorityPolicy():
            return TierPriority(workers=workers, tier_label=settings.tier_label)
        case WeightedFairPolicy():
            return WeightedFair(
                workers=workers,
                tier_label=settings.tier_label,
                attribute=settings.attribute,
                weights=settings.weights,
                cost=_COSTS[settings.cost],
                max_age=settings.max_age,
            )
