-- Bring claims to their ends: each item is one atomic step of its own, fenced by its token.
--
-- KEYS     1 queue (zset)   2 claims (hash token -> body)   3 leases (zset token -> end, ms)
--          4 deliveries (hash sha1(body) -> count)   5 stranded (list: letters without a place)
--          6 retry (zset)   7 dead letters (list)    8 the transport's results (list)
--          9 lots (zset lot -> its lowest score)   10... other result lists and lots (zsets), and
--          for each request with a token its active and cancel key and, where there is one, the
--          key of its stored payload (contract, section 3)
-- ARGV     8 per item: 1 token   2 what: "post", "retry", "release", "park" or "bury"
--          3 retry: the new body; release: the new body, "" for the old; bury: the letter; park:
--          the lot's name   4 retry: due, Unix seconds; release: the new score, "" for the old
--          5 result, "" for none   6 its list, or the lot, an index of KEYS
--          7 milliseconds until that list expires, "" for never
--          8 request token, index of its keys, how many: "<token> <index> <count>", or ""
-- Returns  per item 1 done; 0 the token no longer stands, nothing was written; 2 done, but in
--          another place than asked for; or an error as text: nothing was written, the claim
--          stands
-- Places   a result: its list, else the transport's. A letter: the dead letters, else stranded.
--          A retry: the retry set, else the queue under the old score. The claims in another
--          one's place among KEYS: this user may not use that one.
-- After    a request is in exactly one place, also where a key has the wrong type or may not be
--          written: the claim's body is dropped only when the new place has taken over.

local queue, claims, leases, deliveries, stranded = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local retry, dead_letters, results, lots = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local counted = redis.call('HLEN', deliveries) > 0

local FORBIDDEN = 'NOPERM the key lies in another slot, or this user may not use it'

local function failure(answer)
  return type(answer) == 'table' and answer.err or nil
end

-- Write to the first place that takes it; returns that place, or nil and the first error.
local function place(command, places, ...)
  local fault
  for _, key in ipairs(places) do
    local failed = key == claims and FORBIDDEN or failure(redis.pcall(command, key, ...))
    if not failed then return key end
    fault = fault or failed
  end
  return nil, fault
end

local function post(item)
  local asked = KEYS[tonumber(item.target)]
  local list, fault = place('LPUSH', {asked, results}, item.result)
  if list == asked and item.expires ~= '' then redis.call('PEXPIRE', list, item.expires) end
  return list, fault, list ~= asked
end

local function bury(item)
  local list, fault, moved
  if item.result ~= '' then
    list, fault, moved = post(item)
    if not list then return nil, fault end
  end
  local grave, grave_fault = place('LPUSH', {dead_letters, stranded}, item.value)
  if not grave and list then redis.call('LPOP', list) end
  return grave, grave_fault, moved or grave ~= dead_letters
end

local function put_off(item)
  local set, fault = place('ZADD', {retry}, item.number, item.value)
  if set then return set end
  if place('ZADD', {queue}, item.score, item.value) then return queue, nil, true end
  return nil, fault
end

-- What was counted of a message goes on with its new body.
local function carry_count(old, new)
  local count = redis.call('HGET', deliveries, redis.sha1hex(old))
  if not count then return end
  redis.call('HSET', deliveries, redis.sha1hex(new), count)
  redis.call('HDEL', deliveries, redis.sha1hex(old))
end

local function release(item)
  local score = item.number == '' and item.score or item.number
  local old = redis.call('HGET', claims, item.token)
  local new = item.value == '' and old or item.value
  local released, fault = place('ZADD', {queue}, score, new)
  if released and counted and new ~= old then carry_count(old, new) end
  return released, fault
end

-- Listed first: a lot that is listed and empty harms nobody, one that is not listed would be lost.
local function park(item)
  local listed, fault = place('ZADD', {lots}, 'LT', item.score, item.value)
  if not listed then return nil, fault end
  local body = redis.call('HGET', claims, item.token)
  return place('ZADD', {KEYS[tonumber(item.target)]}, item.score, body)
end

local execute = {post = post, bury = bury, retry = put_off, release = release, park = park}
local keeps_count = {release = true, park = true}

-- The keys of a request go with it, if they still name this generation of its id; where they
-- may not be deleted they expire.
local function forget(request)
  local token, first, count = string.match(request, '^(.*) (%d+) (%d+)$')
  first = tonumber(first)
  local named = redis.pcall('MGET', KEYS[first], KEYS[first + 1])
  for i = 1, 2 do
    if named[i] == token then redis.pcall('DEL', KEYS[first + i - 1]) end
  end
  if tonumber(count) == 3 then redis.pcall('DEL', KEYS[first + 2]) end
end

local function settle(item)
  local lease_end = redis.call('ZSCORE', leases, item.token)
  if not lease_end then return 0 end
  redis.call('ZREM', leases, item.token) -- first of all: after it maxmemory forbids no write
  local placed, fault, moved = execute[item.what](item)
  if not placed then
    redis.call('ZADD', leases, lease_end, item.token)
    return fault
  end
  if counted and not keeps_count[item.what] then
    redis.call('HDEL', deliveries, redis.sha1hex(redis.call('HGET', claims, item.token)))
  end
  redis.call('HDEL', claims, item.token)
  if item.request ~= '' then forget(item.request) end
  return moved and 2 or 1
end

local answer = {}
for i = 1, #ARGV, 8 do
  answer[#answer + 1] = settle({
    token = ARGV[i], what = ARGV[i + 1], value = ARGV[i + 2], number = ARGV[i + 3],
    result = ARGV[i + 4], target = ARGV[i + 5], expires = ARGV[i + 6], request = ARGV[i + 7],
    score = string.match(ARGV[i], '[^:]*$'),
  })
end
return answer
