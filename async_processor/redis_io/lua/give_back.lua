-- Put back whatever is claimed under a token prefix, as if it had never been claimed.
--
-- KEYS     1 queue (zset)   2 claims (hash token -> body)   3 leases (zset token -> end, ms)
-- ARGV     1 token prefix: "<owner>:" or "<owner>:<batch>:"   2 most messages
-- Returns  how many went back; as many as ARGV[2]: there may be more
-- After    they stand in the queue under their old scores, their tokens are void, no delivery
--          was counted.
-- Errors   are raised before a message is touched, or while it stands in both places.

local queue, claims, leases = KEYS[1], KEYS[2], KEYS[3]
local prefix, most = ARGV[1], tonumber(ARGV[2])

redis.call('HDEL', claims, '') -- deletes nothing: a first write that maxmemory does not forbid
local given = 0
for _, token in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
  if given == most then break end
  if string.sub(token, 1, #prefix) == prefix then
    local body = redis.call('HGET', claims, token)
    if body then redis.call('ZADD', queue, string.match(token, '[^:]*$'), body) end
    redis.call('HDEL', claims, token)
    redis.call('ZREM', leases, token)
    given = given + 1
  end
end
return given
