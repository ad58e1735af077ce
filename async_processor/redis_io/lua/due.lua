-- Read retries that are due, as many as make up a bounded answer.
--
-- KEYS     1 retry (zset body -> due)
-- ARGV     1 now, Unix seconds   2 how many of the first to leave out   3 most retries
--          4 no further retry once so many bytes are read
-- Returns  {now by the server's clock, when the next is due or '', body, body, ...}
-- After    nothing has changed. At least one is read whatever its size.

local retry, now, skip = KEYS[1], ARGV[1], tonumber(ARGV[2])
local most, most_bytes = tonumber(ARGV[3]), tonumber(ARGV[4])

local function first(lowest, highest, offset)
  return redis.call('ZRANGEBYSCORE', retry, lowest, highest, 'WITHSCORES', 'LIMIT', offset, 1)
end

local time = redis.call('TIME')
local following = first('(' .. now, '+inf', 0)
local answer, bytes = {string.format('%d.%06d', time[1], time[2]), following[2] or ''}, 0
for offset = skip, skip + most - 1 do
  local body = bytes < most_bytes and first('-inf', now, offset)[1]
  if not body then break end
  answer[#answer + 1] = body
  bytes = bytes + #body
end
return answer
