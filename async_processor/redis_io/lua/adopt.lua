-- Take over expired claims that the Go implementation left.
--
-- KEYS     1 queue (zset)   2 claimed (hash id -> body)   3 claim-owners (hash id -> owner)
--          4 claims-idx (zset id -> end of the lease, Unix seconds)
-- ARGV     2 per claim: 1 id   2 score of its message
-- Returns  how many messages went back to the queue
-- After    they stand in the queue; a claim that was renewed meanwhile is left alone.
-- Errors   are raised before a message is touched, or while it stands in both places.

local queue, claimed, owners, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now = tonumber(redis.call('TIME')[1])

redis.call('ZREM', index, '') -- removes nothing: a first write that maxmemory does not forbid
local adopted = 0
for i = 1, #ARGV, 2 do
  local id = ARGV[i]
  local lease_end = redis.call('ZSCORE', index, id)
  if lease_end and tonumber(lease_end) <= now then
    local body = redis.call('HGET', claimed, id)
    if body then
      redis.call('ZADD', queue, ARGV[i + 1], body)
      adopted = adopted + 1
    end
    redis.call('HDEL', claimed, id)
    redis.call('HDEL', owners, id)
    redis.call('ZREM', index, id)
  end
end
return adopted
