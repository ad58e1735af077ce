-- Enqueue a chunk of messages that are ready: the half of submit.lua that fits one hash slot.
--
-- KEYS  1 queue (sorted set)   2 receipt of this chunk
-- ARGV  1 lifetime of the receipt, ms; then for each message: score, message
-- Returns how many were enqueued: all of them, or 0 when this chunk was enqueued before.
--
-- After: the messages stand in the queue, and the receipt says so (see submit.lua).

local queue, receipt = KEYS[1], KEYS[2]
local kind = redis.call('TYPE', queue).ok
if kind ~= 'zset' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the queue ' .. queue .. ' is a ' .. kind)
end
if redis.call('EXISTS', receipt) == 1 then
  return 0
end
local count = (#ARGV - 1) / 2
redis.call('SET', receipt, count, 'PX', ARGV[1])
for i = 1, count do
  redis.call('ZADD', queue, ARGV[2 * i], ARGV[2 * i + 1])
end
return count
