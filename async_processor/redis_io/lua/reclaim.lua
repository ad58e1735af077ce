-- Put messages whose lease has ended back into their queue, and count a delivery for each.
--
-- KEYS     1 queue (zset)   2 claims (hash token -> body)   3 leases (zset token -> end, ms)
--          4 deliveries (hash sha1(body) -> count)   5 lots (zset lot -> its lowest score)
-- ARGV     1 most messages   2 leases that ended before it (ms) are left alone
--          3 and so are those that end after it (ms); "now": those that have not ended
-- Returns  how many leases ended; as many as ARGV[1]: there may be more
-- After    they stand in the queue under their old scores, their tokens are void. With nothing
--          queued, parked or claimed no count is left either.
-- Errors   are raised before a message is touched, or while it stands in both places.

local queue, claims, leases, deliveries = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local latest = ARGV[3] == 'now' and now or ARGV[3]

local tokens = redis.call('ZRANGEBYSCORE', leases, ARGV[2], latest, 'LIMIT', 0, ARGV[1])
redis.call('HDEL', claims, '') -- deletes nothing: a first write that maxmemory does not forbid
for _, token in ipairs(tokens) do
  local body = redis.call('HGET', claims, token)
  if body then
    redis.call('ZADD', queue, string.match(token, '[^:]*$'), body)
    redis.call('HINCRBY', deliveries, redis.sha1hex(body), 1)
  end
  redis.call('HDEL', claims, token)
  redis.call('ZREM', leases, token)
end

if redis.call('EXISTS', claims, queue, KEYS[5]) == 0 then
  redis.call('DEL', deliveries)
end
return #tokens
