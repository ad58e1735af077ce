-- Move one dead letter back into its queue.
--
-- KEYS  1 dead-letter queue (list)   2 queue (sorted set)
-- ARGV  1 the dead letter   2 score   3 message
-- Returns 1, or 0 if somebody else has moved or purged it.
--
-- After: the message is either a dead letter or in the queue, never both and never neither.

local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'zset' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the queue ' .. KEYS[2] .. ' is a ' .. kind)
end
if redis.call('LREM', KEYS[1], -1, ARGV[1]) == 0 then
  return 0
end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[3])
return 1
