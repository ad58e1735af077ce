-- Put back what a reader took and did not acknowledge, and forget the reader.
--
-- KEYS  1 readers (sorted set: reader, end of its lease in ms)   2 result queue (list)
--       3 taken by that reader (hash: number, result)
-- ARGV  1 reader   2 'closed' (it says so itself) or 'expired' (only if its lease has ended)
-- Returns how many results were put back, -1 if the lease has not ended.
--
-- After: they are the next to be taken, in the order in which they were.

local readers, results, taken, reader = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

if ARGV[2] == 'expired' then
  local lease = redis.call('ZSCORE', readers, reader)
  local time = redis.call('TIME')
  if not lease or tonumber(lease) >= time[1] * 1000 + math.floor(time[2] / 1000) then
    return -1
  end
end
local kind = redis.call('TYPE', results).ok
if kind ~= 'list' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the result queue ' .. results .. ' is a ' .. kind)
end

redis.call('ZREM', readers, reader)
local numbers = redis.call('HKEYS', taken)
table.sort(numbers, function(a, b) return a > b end)
for _, number in ipairs(numbers) do
  redis.call('RPUSH', results, redis.call('HGET', taken, number))
  redis.call('HDEL', taken, number)
end
return #numbers
