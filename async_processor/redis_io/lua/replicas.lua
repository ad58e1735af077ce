-- Keep one replica on the roll of those that live, or take it off.
--
-- KEYS     1 the roll (hash replica -> the end of its lease and when it came, ms, and the roster
--          that it keeps to)
-- ARGV     1 the replica   2 ms of its lease; 0: it leaves   3 the roster that it keeps to, or ''
-- Returns  how many replicas there are, how many of them come before this one by name, their
--          roster (a digest of all names), 1 if all the others keep to it, and for how many ms this
--          one, and the first of the others, have been on the roll without a break (0: no others);
--          not to have renewed for half a lease is a break: others' leases may have ended as well.
-- After    nobody is on the roll whose lease has ended; with nobody on it there is no key.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local own, lease, kept = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local entries = redis.call('HGETALL', KEYS[1])
local names, kept_by, came, first = {}, {}, now, now
for i = 1, #entries, 2 do
  local name, ends, since, roster = entries[i], string.match(entries[i + 1], '^(%d+) (%d+) (.*)$')
  local unbroken = tonumber(ends) - now >= lease / 2 and tonumber(since) or now
  if tonumber(ends) <= now then
    redis.call('HDEL', KEYS[1], name)
  elseif name == own then
    came = math.min(now, unbroken)
  else
    first = math.min(first, unbroken)
    table.insert(names, name)
    kept_by[name] = roster
  end
end

if lease > 0 then
  table.insert(names, own)
  redis.call('HSET', KEYS[1], own, string.format('%.0f %.0f %s', now + lease, came, kept))
  redis.call('PEXPIRE', KEYS[1], lease)
else
  redis.call('HDEL', KEYS[1], own)
end

table.sort(names)
local roster = redis.sha1hex(table.concat(names, ' '))
local rank, agreed = 0, 1
for _, name in ipairs(names) do
  if name < own then rank = rank + 1 end
  if name ~= own and kept_by[name] ~= roster then agreed = 0 end
end
return {#names, rank, roster, agreed, now - came, now - first}
