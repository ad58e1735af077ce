-- Read dead letters from the oldest on, a page that no reader has to fear.
--
-- KEYS     1 dead-letter queue (list, newest first)
-- ARGV     1 how many of the oldest to skip   2 at most so many letters
--          3 no further letter once so many bytes are read
-- Returns  the letters, the oldest first; none where there is none left.

local skip, limit, max_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local letters, bytes = {}, 0
while #letters < limit and bytes < max_bytes do
  local letter = redis.call('LINDEX', KEYS[1], -(skip + #letters + 1))
  if not letter then break end
  letters[#letters + 1] = letter
  bytes = bytes + #letter
end
return letters
