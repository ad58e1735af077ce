-- Enqueue a chunk of requests in one step.
--
-- KEYS  1 queue (sorted set)   2 receipt of this chunk
--       then for each request: its sequence, its request-active, its request-cancel,
--       its request-payload (written only if ARGV says so)
-- ARGV  1 lifetime of the receipt, ms
--       then for each request: message up to the sequence number, message after it, token,
--       deadline (Unix seconds), 1 if a payload is to be stored, that payload
-- Returns how many were enqueued: all of them, or 0 when this chunk was enqueued before. Also then
-- something is written, so that WAIT after it waits for the chunk, over whichever connection.
--
-- Before: nothing is assumed. After: each message stands in the queue under
-- deadline + min(seq, 2097151) / 2097152 and can be cancelled, and the receipt says so: a producer
-- that did not hear the answer repeats the call, and nothing is enqueued twice, even if the
-- requests have been executed meanwhile.

local PER_REQUEST_KEYS, PER_REQUEST_ARGS = 4, 6
local SPAN = 2097152
local SEQUENCE_GRACE_S, PAYLOAD_GRACE_S = 3600, 600

local queue, receipt = KEYS[1], KEYS[2]

local kind = redis.call('TYPE', queue).ok
if kind ~= 'zset' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the queue ' .. queue .. ' is a ' .. kind)
end
-- Only what adds may be the first write: after it maxmemory forbids nothing any more.
if redis.call('EXISTS', receipt) == 1 then
  redis.call('PEXPIRE', receipt, ARGV[1])
  return 0
end

local count = (#KEYS - 2) / PER_REQUEST_KEYS
redis.call('SET', receipt, count, 'PX', ARGV[1])
for i = 0, count - 1 do
  local k, a = 2 + i * PER_REQUEST_KEYS, 1 + i * PER_REQUEST_ARGS
  local sequence, active, cancel, stored = KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
  local head, tail, token = ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
  local deadline = tonumber(ARGV[a + 4])

  local seq = redis.call('INCR', sequence)
  redis.call('EXPIREAT', sequence, deadline + SEQUENCE_GRACE_S)
  redis.call('DEL', cancel)
  redis.call('SET', active, token, 'EXAT', deadline)
  if ARGV[a + 5] == '1' then
    redis.call('SET', stored, ARGV[a + 6], 'EXAT', deadline + PAYLOAD_GRACE_S)
  end
  local score = deadline + math.min(seq, SPAN - 1) / SPAN
  redis.call('ZADD', queue, string.format('%.17g', score), head .. seq .. tail)
end
return count
