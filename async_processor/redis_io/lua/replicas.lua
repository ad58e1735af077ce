-- Keep one replica on the roll of those that live, or take it off.
--
-- KEYS     1 the roll (zset replica -> end of its lease, ms)
-- ARGV     1 the replica   2 ms of its lease; 0: it leaves
-- Returns  how many replicas there are, and how many of them come before this one by name.
-- After    nobody is on the roll whose lease has ended; with nobody on it there is no key.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local own, lease = ARGV[1], tonumber(ARGV[2])

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if lease > 0 then
  redis.call('ZADD', KEYS[1], now + lease, own)
  redis.call('PEXPIRE', KEYS[1], lease)
else
  redis.call('ZREM', KEYS[1], own)
end

local all = redis.call('ZRANGE', KEYS[1], 0, -1)
local rank = 0
for _, each in ipairs(all) do
  if each < own then rank = rank + 1 end
end
return {#all, rank}
