-- Move one dead letter back into its queue.
--
-- KEYS  1 dead-letter queue (list)   2 queue (sorted set)   3 the request's sequence
--       4 request-active:<id>   5 request-cancel:<id>
-- ARGV  1 the dead letter   2 message up to the sequence number   3 message after it
--       4 token   5 deadline (Unix seconds)
-- Returns 1, or 0 if somebody else has moved or purged it.
--
-- After: the message is either a dead letter or in the queue, never both and never neither.

local SPAN = 2097152
local SEQUENCE_GRACE_S = 3600
local letters, queue, sequence, active, cancel = unpack(KEYS)
local letter, head, tail, token, deadline = unpack(ARGV)

local kind = redis.call('TYPE', queue).ok
if kind ~= 'zset' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the queue ' .. queue .. ' is a ' .. kind)
end
if redis.call('LREM', letters, 1, letter) == 0 then
  return 0
end
local seq = redis.call('INCR', sequence)
redis.call('EXPIREAT', sequence, deadline + SEQUENCE_GRACE_S)
redis.call('DEL', cancel)
redis.call('SET', active, token, 'EXAT', deadline)
local score = deadline + math.min(seq, SPAN - 1) / SPAN
redis.call('ZADD', queue, string.format('%.17g', score), head .. seq .. tail)
return 1
