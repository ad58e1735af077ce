-- Move due retries to where they belong; a member that somebody else has moved is left alone.
--
-- KEYS     1 retry (zset body -> due)   2 dead letters (list)   3 stranded (list: letters
--          without a place)   4... request queues (zsets)
-- ARGV     4 per retry: 1 body   2 its queue, an index of KEYS; 0: it is to be buried
--          3 its score there   4 the letter to bury it with
-- Returns  per retry 1 moved, 2 buried, 0 gone, or an error as text: it stands where it stood
-- After    a retry is in exactly one place: its queue, else (the queue is of another type, or
--          may not be written) the dead letters, else stranded.

local retry, dead_letters, stranded = KEYS[1], KEYS[2], KEYS[3]

local function accepts(command, key, ...)
  local answer = redis.pcall(command, key, ...)
  if type(answer) == 'table' and answer.err then return false, answer.err end
  return true
end

local function move(body, queue, score, letter)
  if queue and accepts('ZADD', queue, score, body) then return 1 end
  local buried, fault = accepts('LPUSH', dead_letters, letter)
  if buried or accepts('LPUSH', stranded, letter) then return 2 end
  return fault
end

redis.call('ZREM', retry, '') -- removes nothing: a first write that maxmemory does not forbid
local answer = {}
for i = 1, #ARGV, 4 do
  local body, moved = ARGV[i], 0
  if redis.call('ZSCORE', retry, body) then
    local index = tonumber(ARGV[i + 1])
    moved = move(body, index > 0 and KEYS[index] or nil, ARGV[i + 2], ARGV[i + 3])
    if type(moved) == 'number' then redis.call('ZREM', retry, body) end
  end
  answer[#answer + 1] = moved
end
return answer
