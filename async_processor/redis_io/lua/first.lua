-- Read when the first message of a queue is due, whether it waits there or in a lot.
--
-- KEYS     1 queue (zset body -> score)   2 lots (zset lot -> its lowest score)
-- Returns  {now by the server's clock, the lowest score or ''}; Unix seconds
-- After    nothing has changed.

local time = redis.call('TIME')
local lowest
for i = 1, 2 do
  local score = redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2]
  if score and not (lowest and tonumber(lowest) <= tonumber(score)) then lowest = score end
end
return {string.format('%d.%06d', time[1], time[2]), lowest or ''}
