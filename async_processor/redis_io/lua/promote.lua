-- Move due retries to where they belong; a member that somebody else has moved is left alone.
--
-- KEYS     1 retry (zset body -> due)   2... request queues (zsets); the retry set in another
--          one's place: this user may not use that one
-- ARGV     4 per retry: 1 body   2 its score in a queue
--          3 its queue   4 the queue for what its own does not take: indices of KEYS, 0 for none
-- Returns  per retry 1 moved, 2 moved to the other queue, 0 gone, or an error as text: it stands
--          where it stood
-- After    a retry is in exactly one place.

local retry = KEYS[1]

local function accepts(index, score, body)
  local queue = KEYS[tonumber(index)]
  if not queue or queue == retry then return false end
  local answer = redis.pcall('ZADD', queue, score, body)
  if type(answer) == 'table' and answer.err then return false, answer.err end
  return true
end

local function move(body, score, own, other)
  local moved, fault = accepts(own, score, body)
  if moved then return 1 end
  local taken, other_fault = accepts(other, score, body)
  return taken and 2 or fault or other_fault or 'ERR no queue is left for it'
end

redis.call('ZREM', retry, '') -- removes nothing: a first write that maxmemory does not forbid
local answer = {}
for i = 1, #ARGV, 4 do
  local body, moved = ARGV[i], 0
  if redis.call('ZSCORE', retry, body) then
    moved = move(body, ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
    if type(moved) == 'number' then redis.call('ZREM', retry, body) end
  end
  answer[#answer + 1] = moved
end
return answer
