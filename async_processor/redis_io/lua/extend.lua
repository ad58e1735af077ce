-- Renew leases to one full lease from now.
--
-- KEYS     1 leases (zset token -> end, ms)
-- ARGV     1 lease, ms   2... tokens, at most 1000
-- Returns  {now, the tokens that no longer stand}; now in Unix seconds
-- After    every other token's lease ends one lease from now by the server's clock.

local time = redis.call('TIME')
local lease_end = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1])
redis.call('ZREM', KEYS[1], '') -- removes nothing: a first write that maxmemory does not forbid

local answer = {string.format('%d.%06d', time[1], time[2])}
for i = 2, #ARGV do
  if redis.call('ZSCORE', KEYS[1], ARGV[i]) then
    redis.call('ZADD', KEYS[1], lease_end, ARGV[i])
  else
    answer[#answer + 1] = ARGV[i]
  end
end
return answer
