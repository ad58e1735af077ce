-- Push the result that a dead letter holds, in the letter's place.
--
-- KEYS  1 dead-letter queue (list)   2 result queue (list)
-- ARGV  1 the dead letter   2 the result   3 milliseconds until the result queue expires, "" never
-- Returns 1, or 0 if somebody else has moved or purged it.
--
-- After: the result lies in the dead letter or on its queue, never on both and never on neither.

local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'list' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the result queue ' .. KEYS[2] .. ' is a ' .. kind)
end
if redis.call('LREM', KEYS[1], -1, ARGV[1]) == 0 then
  return 0
end
redis.call('LPUSH', KEYS[2], ARGV[2])
if ARGV[3] ~= '' then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
return 1
