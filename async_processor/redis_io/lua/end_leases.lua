-- End every lease under a token prefix, as of long ago: its holder is known to be dead.
--
-- KEYS     1 leases (zset token -> end, ms)
-- ARGV     1 token prefix "<owner>:"
-- Returns  how many ended
-- After    they end at 0, where no other lease does, for reclaim.lua to take them back.

local prefix = ARGV[1]
redis.call('ZREM', KEYS[1], '') -- removes nothing: a first write that maxmemory does not forbid
local ended = 0
for _, token in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if string.sub(token, 1, #prefix) == prefix then
    redis.call('ZADD', KEYS[1], 0, token)
    ended = ended + 1
  end
end
return ended
