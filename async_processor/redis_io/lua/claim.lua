-- Lease the earliest messages of a queue.
--
-- KEYS     1 queue (zset body -> score)       2 claims (hash token -> body)
--          3 leases (zset token -> end, ms)   4 deliveries (hash sha1(body) -> count)
-- ARGV     1 token prefix "<owner>:<batch>:"  2 most messages   3 most bytes   4 lease, ms
--          5 highest score: "+inf" or "now"
--          6 how many suspects may be among them (a suspect: claimed ARGV[7] times or more
--            without an outcome); those over it stay where they are, and are looked past
-- Returns  {now, token, deliveries, body, token, deliveries, body, ...}; now in Unix seconds
-- Before   a message stands in the queue, and no token of this prefix exists
-- After    what is returned stands under claims and leases instead, under a token that ends in
--          ":<score>", so that it can go back to where it was. At least one message is taken
--          whatever its size.
-- Errors   are raised before a message is touched, or while it stands in both places.

local queue, claims, leases, deliveries = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, most, most_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local suspects_left, suspect_after = tonumber(ARGV[6]), tonumber(ARGV[7])

local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
local lease_end = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[4])
local highest = ARGV[5] == 'now' and now or ARGV[5]
local PAGE, LONG_PAGE = 32, 128 -- bound what is read beyond the byte limit
local counted = redis.call('HLEN', deliveries) > 0

local function deliveries_of(body)
  return counted and tonumber(redis.call('HGET', deliveries, redis.sha1hex(body)) or 0) or 0
end

local function may_take(count)
  if count < suspect_after then return true end
  suspects_left = suspects_left - 1
  return suspects_left >= 0
end

-- Among suspects that must wait the pages grow, to get past them in few steps.
local answer, taken, bytes, offset, passed = {now}, {}, 0, 0, 0
while #taken < most and bytes < most_bytes do
  local page = redis.call('ZRANGEBYSCORE', queue, '-inf', highest, 'WITHSCORES',
    'LIMIT', offset, math.min(LONG_PAGE, math.min(PAGE, most - #taken) + 3 * passed))
  if #page == 0 then break end
  for i = 1, #page, 2 do
    local body, count = page[i], deliveries_of(page[i])
    if may_take(count) then
      taken[#taken + 1] = body
      answer[#answer + 1] = prefix .. #taken .. ':' .. page[i + 1]
      answer[#answer + 1] = count
      answer[#answer + 1] = body
      bytes = bytes + #body
      if #taken == most or bytes >= most_bytes then break end
    else
      passed = passed + 1
    end
  end
  offset = offset + #page / 2
end

if #taken == 0 then return answer end
redis.call('HDEL', claims, '') -- deletes nothing: a first write that maxmemory does not forbid
for i, body in ipairs(taken) do
  local token = answer[3 * i - 1]
  redis.call('ZADD', leases, lease_end, token)
  redis.call('HSET', claims, token, body)
  redis.call('ZREM', queue, body)
end
return answer
