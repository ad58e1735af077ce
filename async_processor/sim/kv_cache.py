"""The blocks of a GPU's key-value cache: how many a sequence holds, and whether it may have more.

Like vLLM, one block is set aside as the null block and never given out.
"""

from __future__ import annotations

from collections.abc import Hashable


class KvCache:
    """Counts blocks; owned and written by one engine."""

    def __init__(self, *, blocks: int, block_size: int) -> None:
        self._usable = blocks - 1
        self._block_size = block_size
        self._held: dict[Hashable, int] = {}
        self._free = self._usable

    @property
    def usage(self) -> float:
        """The share of blocks in use, in [0, 1]."""
        return 1 - self._free / self._usable

    @property
    def capacity(self) -> int:
        """How many tokens fit in all."""
        return self._usable * self._block_size

    def reserve(self, owner: Hashable, tokens: int) -> bool:
        """Hold blocks for `tokens` tokens in all; False, and no change, if too few are free."""
        missing = -(-tokens // self._block_size) - self._held.get(owner, 0)
        if missing > self._free:
            return False
        if missing > 0:
            self._held[owner] = self._held.get(owner, 0) + missing
            self._free -= missing
        return True

    def free(self, owner: Hashable) -> None:
        """Give back every block of `owner`."""
        self._free += self._held.pop(owner, 0)
