"""The Lua scripts: one file per command, run by digest, loaded when the server lacks them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

from async_processor.fields import Confirm
from async_processor.redis_io.client import Argument, Command, RedisClient
from async_processor.redis_io.confirming import confirmed
from async_processor.redis_io.errors import ScriptMissing


class Script:
    """One file of `lua/`; its header says what it takes, returns and promises."""

    def __init__(self, name: str) -> None:
        source = resources.files("async_processor.redis_io").joinpath("lua", f"{name}.lua")
        self._text = source.read_bytes()
        self.digest = hashlib.sha1(self._text, usedforsecurity=False).hexdigest()

    async def run(
        self, client: RedisClient, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> Any:
        """Run it; raises as `RedisClient.execute`. A missing script was not run at all."""
        rest = (len(keys), *keys, *arguments)
        try:
            return await client.execute("EVALSHA", self.digest, *rest)
        except ScriptMissing:
            return await client.execute("EVAL", self._text, *rest)

    def command(self, keys: Sequence[str], arguments: Sequence[Argument]) -> Command:
        """It as one of several; the text goes along, for a digest that is not known fails all."""
        return ("EVAL", self._text, len(keys), *keys, *arguments)

    async def run_confirmed(
        self,
        client: RedisClient,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        confirm: Confirm,
    ) -> tuple[Any, bool]:
        """Run it; returns its answer, and whether replicas have what it wrote as well.

        Where they are asked the text goes along: a digest that the server does not know would be
        found out only when the wait that was sent with it has timed out.
        """
        if not confirm.replicas:
            return await self.run(client, keys, arguments), True
        return await confirmed(client, self.command(keys, arguments), confirm)


CLAIM: Final = Script("claim")
SETTLE: Final = Script("settle")
EXTEND: Final = Script("extend")
RECLAIM: Final = Script("reclaim")
GIVE_BACK: Final = Script("give_back")
END_LEASES: Final = Script("end_leases")
FIRST: Final = Script("first")
RECALL: Final = Script("recall")
COUNT: Final = Script("count")
DUE: Final = Script("due")
PROMOTE: Final = Script("promote")
ADOPT: Final = Script("adopt")
TRIM: Final = Script("trim")
UNSTRAND: Final = Script("unstrand")
FORGET: Final = Script("forget")
QUOTA_SLOTS: Final = Script("quota_slots")
QUOTA_STARTS: Final = Script("quota_starts")
LEASED_RATE: Final = Script("leased_rate")
REPLICAS: Final = Script("replicas")
