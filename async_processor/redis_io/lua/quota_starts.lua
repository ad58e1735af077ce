-- Rate limits: charge tenants for starts, by a log of those of the last window.
--
-- KEYS     1 wanted (zset tenant -> until, ms: somebody waits for a start of this tenant)
--          2... two per tenant: its starts (zset start -> when, ms), and which requests are
--          charged already (zset request -> until when that is remembered, ms)
-- ARGV     1 ms of the window   2 ms that a tenant stays wanted   3 most requests of a tenant
--          that are remembered as charged
--          7 per item: 1 what: "charge", "refund", "settle", "room" or "used"   2 the tenant's
--          starts, an index of KEYS   3 the tenant's name   4 the request   5 charge, refund: the start, a name
--          that no other charge has   6 the tenant's limit   7 charge: ms that it is remembered
-- Returns  per item. charge: 1 charged, 2 was charged before, or minus the ms until there may be
--          room. refund: 1 if somebody has begun to wait since the charge: who waited before has had
--          this room already, and could make no use of it.
--          settle: 0. room: how many may start, or minus the ms. used: how many have started in the
--          window; that changes nothing.
-- After    no interval as long as the window, its ends included, holds more starts than the
--          limit. A request that is settled is charged anew if it comes again, and its start counts
--          on. With no request unsettled and no start in the window no key of the tenant is left.
--          A start later than now (the clock was set back) counts as one of now.

local wanted, window, patience = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local most_charged = tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The first write of an item removes: after it maxmemory forbids none.
local function recent(starts)
  redis.call('ZREMRANGEBYSCORE', starts, '-inf', '(' .. now - window)
  for _, start in ipairs(redis.call('ZRANGEBYSCORE', starts, '(' .. now, '+inf')) do
    redis.call('ZADD', starts, now, start)
  end
  return redis.call('ZCARD', starts)
end

local function charged(item)
  redis.call('ZREMRANGEBYSCORE', item.charged, '-inf', now)
  return redis.call('ZSCORE', item.charged, item.request)
end

local function start(item)
  redis.call('ZADD', item.starts, now, item.start)
  redis.call('PEXPIRE', item.starts, window + 1)
  redis.call('ZADD', item.charged, now + item.remember, item.request)
  redis.call('ZREMRANGEBYRANK', item.charged, 0, -most_charged - 1)
  local last = redis.call('ZRANGE', item.charged, -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', item.charged, last[2])
  return 1
end

-- Room comes when so many have left the window that fewer than the limit are in it.
local function wait(item, count)
  redis.call('ZREMRANGEBYSCORE', wanted, '-inf', now)
  redis.call('ZADD', wanted, now + patience, item.tenant)
  redis.call('PEXPIRE', wanted, patience)
  local rank = count - item.limit
  local leaving = redis.call('ZRANGE', item.starts, rank, rank, 'WITHSCORES')
  return -(leaving[2] + window + 1 - now)
end

local function charge(item)
  local count = recent(item.starts)
  if charged(item) then
    if count <= item.limit then return 2 end
  elseif count < item.limit then
    return start(item)
  end
  return wait(item, count)
end

local function refund(item)
  local charged_at = redis.call('ZSCORE', item.starts, item.start)
  redis.call('ZREM', item.starts, item.start)
  redis.call('ZREM', item.charged, item.request)
  local waits_since = tonumber(redis.call('ZSCORE', wanted, item.tenant) or 0) - patience
  return charged_at and waits_since >= tonumber(charged_at) and 1 or 0
end

local function settle(item)
  redis.call('ZREM', item.charged, item.request)
  return 0
end

local function room(item)
  local count = recent(item.starts)
  return count < item.limit and item.limit - count or wait(item, count)
end

local function used(item)
  return redis.call('ZCOUNT', item.starts, now - window, '+inf')
end

local execute = {charge = charge, refund = refund, settle = settle, room = room, used = used}
local answer = {}
for i = 4, #ARGV, 7 do
  local index = tonumber(ARGV[i + 1])
  answer[#answer + 1] = execute[ARGV[i]]({
    starts = KEYS[index], charged = KEYS[index + 1], tenant = ARGV[i + 2],
    request = ARGV[i + 3], start = ARGV[i + 4], limit = tonumber(ARGV[i + 5]),
    remember = ARGV[i + 6],
  })
end
return answer
