-- Put messages of a lot back into their queue, the earliest first.
--
-- KEYS     1 queue (zset)   2 lots (zset lot -> its lowest score)   3 the lot (zset body -> score)
-- ARGV     1 the lot's name   2 highest score: "+inf" or "now"   3 most messages
-- Returns  how many went back
-- After    they stand in the queue under the scores they had; the lot's lowest score is that of
--          what is left, and an empty lot is no longer listed; nor is a key of another type,
--          which holds none of ours.
-- Errors   are raised before a message is touched, or while it stands in both places.

local queue, lots, lot, name = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local time = redis.call('TIME')
local highest = ARGV[2] == 'now' and string.format('%d.%06d', time[1], time[2]) or ARGV[2]

local page = redis.pcall('ZRANGEBYSCORE', lot, '-inf', highest, 'WITHSCORES', 'LIMIT', 0, ARGV[3])
redis.call('ZREM', lots, page.err and name or '') -- a first write that maxmemory does not forbid
if page.err then return 0 end
for i = 1, #page, 2 do
  redis.call('ZADD', queue, page[i + 1], page[i])
  redis.call('ZREM', lot, page[i])
end

local first = redis.call('ZRANGE', lot, 0, 0, 'WITHSCORES')
if first[1] then
  redis.call('ZADD', lots, first[2], name)
else
  redis.call('ZREM', lots, name)
end
return #page / 2
