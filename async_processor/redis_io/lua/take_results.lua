-- Take results from a result queue into the keeping of a reader.
--
-- KEYS  1 readers (sorted set: reader, end of its lease in ms)   2 result queue (list)
--       3 taken by this reader (hash: number, result)
-- ARGV  1 reader   2 lease, ms   3 number of this call   4 at most so many results
--       5 no further result once so many bytes are taken
-- Returns numbers and results alternately, the oldest first.
--
-- Before: nothing is assumed. After: what is returned stands in the hash until it is acknowledged
-- (HDEL) or returned, and the reader's lease is new. A call repeated under the same number returns
-- what the first one took, so an answer that was lost loses nothing.

local readers, results, taken = KEYS[1], KEYS[2], KEYS[3]
local reader, lease, call = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local limit, max_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])

local function number(i)
  return string.format('%s.%06d', call, i)
end

for key, wanted in pairs({ [results] = 'list', [taken] = 'hash', [readers] = 'zset' }) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= wanted and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. kind .. ', not a ' .. wanted)
  end
end

local answer = {}
while #answer < 2 * limit do
  local i = #answer / 2 + 1
  local body = redis.call('HGET', taken, number(i))
  if not body then break end
  answer[#answer + 1], answer[#answer + 2] = number(i), body
end

-- Removing comes before adding: so it also works while the server is at its maxmemory.
redis.call('ZREM', readers, reader)
local bytes = 0
while #answer < 2 * limit and bytes < max_bytes do
  local body = redis.call('RPOP', results)
  if not body then break end
  local name = number(#answer / 2 + 1)
  redis.call('HSET', taken, name, body)
  answer[#answer + 1], answer[#answer + 2] = name, body
  bytes = bytes + #body
end

local time = redis.call('TIME')
redis.call('ZADD', readers, time[1] * 1000 + math.floor(time[2] / 1000) + lease, reader)
return answer
