-- Read what stands first in a queue, and when the first of it and its lots is due.
--
-- KEYS     1 queue (zset body -> score)   2 its lots, if it has any (zset lot -> its lowest score)
-- ARGV     1 most bytes of a body that is returned
-- Returns  {now by the server's clock, the lowest score or '', the body of the queue's first message,
--          or '' where there is none or it is larger}; Unix seconds
-- After    nothing has changed.

local most_bytes = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local parked = KEYS[2] and redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES') or {}

local lowest = first[2] or parked[2] or ''
if first[2] and parked[2] and tonumber(parked[2]) < tonumber(first[2]) then lowest = parked[2] end
return {now, lowest, first[1] and #first[1] <= most_bytes and first[1] or ''}
