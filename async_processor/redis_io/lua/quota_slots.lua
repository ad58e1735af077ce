-- Concurrency quotas: take, keep, free, refund and count the slots of tenants.
--
-- KEYS     1 wanted (zset tenant -> until, ms: somebody waits for a slot of this tenant)
--          2... the slots of one tenant each (zset slot -> end of its life, ms)
-- ARGV     1 ms that a slot lives   2 ms that a tenant stays wanted
--          7 per item: 1 what: "take", "keep", "free", "refund", "room" or "used"   2 the tenant's
--          slots, an index of KEYS   3 the tenant's name   4 the slot   5 not used   6 the tenant's limit
--          7 not used
-- Returns  per item. take: 1, or minus the ms until one ends if all slots are taken. keep: 1, or 0 if the slot is gone.
--          free: 1 if somebody waits for it. refund: 1 if somebody has begun to wait since the slot
--          was taken or last kept: who waited before has had this room already, and could make no
--          use of it. room: how many slots are free, or minus the ms until one ends. used: how many
--          are taken; that changes nothing.
-- After    a tenant never has more slots whose life has not ended than its limit says. Taking the
--          same slot again takes no second one. With no slot alive no key of the tenant is left.

local wanted, life, patience = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The first write of an item removes: after it maxmemory forbids none.
local function alive(slots)
  redis.call('ZREMRANGEBYSCORE', slots, '-inf', now)
  return redis.call('ZCARD', slots)
end

local function hold(item)
  redis.call('ZADD', item.slots, now + life, item.slot)
  local last = redis.call('ZRANGE', item.slots, -1, -1, 'WITHSCORES')
  redis.call('PEXPIREAT', item.slots, last[2])
  return 1
end

local function want(item)
  redis.call('ZREMRANGEBYSCORE', wanted, '-inf', now)
  redis.call('ZADD', wanted, now + patience, item.tenant)
  redis.call('PEXPIRE', wanted, patience)
end

-- Room comes when so many have ended that fewer than the limit are alive.
local function wait(item, taken)
  local rank = taken - item.limit
  return now - redis.call('ZRANGE', item.slots, rank, rank, 'WITHSCORES')[2]
end

local function take(item)
  local taken = alive(item.slots)
  if redis.call('ZSCORE', item.slots, item.slot) or taken < item.limit then return hold(item) end
  want(item)
  return wait(item, taken)
end

local function keep(item)
  alive(item.slots)
  return redis.call('ZSCORE', item.slots, item.slot) and hold(item) or 0
end

local function free(item)
  redis.call('ZREM', item.slots, item.slot)
  return tonumber(redis.call('ZSCORE', wanted, item.tenant) or 0) > now and 1 or 0
end

local function refund(item)
  local ends = redis.call('ZSCORE', item.slots, item.slot)
  redis.call('ZREM', item.slots, item.slot)
  local waits_since = tonumber(redis.call('ZSCORE', wanted, item.tenant) or 0) - patience
  return ends and waits_since >= ends - life and 1 or 0
end

local function room(item)
  local taken = alive(item.slots)
  want(item)
  return taken < item.limit and item.limit - taken or wait(item, taken)
end

local function used(item)
  return redis.call('ZCOUNT', item.slots, '(' .. now, '+inf')
end

local execute = {
  take = take, keep = keep, free = free, refund = refund, room = room, used = used,
}
local answer = {}
for i = 3, #ARGV, 7 do
  answer[#answer + 1] = execute[ARGV[i]]({
    slots = KEYS[tonumber(ARGV[i + 1])], tenant = ARGV[i + 2], slot = ARGV[i + 3],
    limit = tonumber(ARGV[i + 5]),
  })
end
return answer
