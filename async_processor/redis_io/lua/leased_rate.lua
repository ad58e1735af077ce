-- Take permits out of a token bucket whose rate a planner has leased to its replicas.
--
-- KEYS     1 the lease (hash api_version, pool_id, max_admission_rps, valid_until_unix_ms,
--          decision_id), which the planner writes   2 the bucket (hash tokens, last_ms)
-- ARGV     1 the API version   2 the pool   3 seconds of the rate that the bucket holds
--          4 how many permits are wanted; 0: only look
-- Returns  1 why the lease does not hold, or ""   2 how many permits were taken   3 the rate per
--          second   4 until when it holds, Unix ms   5 for how many ms   6 in how many ms as many
--          permits as were wanted will be there
-- After    in any time t no more permits were taken, by anybody, than the rate allows in t and one
--          bucket holds (at least one permit). The server's clock going back refills nothing.

local lease = redis.call('HMGET', KEYS[1],
  'api_version', 'pool_id', 'max_admission_rps', 'valid_until_unix_ms', 'decision_id')
local burst, wanted = tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function refused(why) return {why, 0, '0', 0, 0, 0} end

local fields = {'api_version', 'pool_id', 'max_admission_rps', 'valid_until_unix_ms', 'decision_id'}
for i, field in ipairs(fields) do
  if not lease[i] or lease[i] == '' then return refused('there is no ' .. field) end
end
if lease[1] ~= ARGV[1] then return refused('api_version is not ' .. ARGV[1]) end
if lease[2] ~= ARGV[2] then return refused('it is for another pool than ' .. ARGV[2]) end
local rate, valid_until = tonumber(lease[3]), tonumber(lease[4])
if not rate or not (rate >= 0 and rate < math.huge) then
  return refused('max_admission_rps is no rate')
end
if not valid_until or not (math.abs(valid_until) < math.huge) or valid_until % 1 ~= 0 then
  return refused('valid_until_unix_ms is no time')
end
if valid_until <= now then return refused('it has expired') end

local left = valid_until - now
if rate == 0 or wanted == 0 then return {'', 0, tostring(rate), valid_until, left, 0} end

local capacity = math.max(1, rate * burst)
local tokens = tonumber(redis.call('HGET', KEYS[2], 'tokens') or nil)
local last = tonumber(redis.call('HGET', KEYS[2], 'last_ms') or nil)
local at = now
if tokens and last then
  at = math.max(now, last)
  tokens = math.min(capacity, tokens + (at - last) / 1000 * rate)
else
  tokens = capacity
end
local taken = math.min(wanted, math.floor(tokens))
tokens = tokens - taken
redis.call('HSET', KEYS[2], 'tokens', tostring(tokens), 'last_ms', tostring(at))
redis.call('PEXPIRE', KEYS[2], math.max(1000, left + 1000))

local missing = math.max(0, math.min(wanted, math.floor(capacity)) - tokens)
return {'', taken, tostring(rate), valid_until, left, math.ceil(missing / rate * 1000)}
