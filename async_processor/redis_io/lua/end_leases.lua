-- Let every lease under a token prefix end now: its holder is known to be dead.
--
-- KEYS     1 leases (zset token -> end, ms)
-- ARGV     1 token prefix "<owner>:"
-- Returns  how many ended
-- After    the next reclaim takes them back, and counts a delivery for each.

local prefix = ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

redis.call('ZREM', KEYS[1], '') -- removes nothing: a first write that maxmemory does not forbid
local ended = 0
for _, token in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if string.sub(token, 1, #prefix) == prefix then
    redis.call('ZADD', KEYS[1], now, token)
    ended = ended + 1
  end
end
return ended
