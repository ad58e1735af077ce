"""A sorted set per queue, on Redis or Valkey.

What must hold, and where it is kept (`redis_io/lua` says it command by command):

* A message stands in exactly one place: the queue, a claim, the retry set, or an end (a result, a
  dead letter). Every script takes a message over into its new place before it leaves the old one.
* A claim is named by a token, "<owner>:<batch>:<number>:<score>". Tokens fence every later step,
  say whose the claim is, and where its message goes back to.
* An answer that was lost is asked for again: a lost claim is given back first, a lost settlement
  is sent again, and "gone" then counts as done.
"""

from async_processor.transport.redis_sorted_set.transport import CLAIM_BYTES, RedisSortedSet

__all__ = ["CLAIM_BYTES", "RedisSortedSet"]
