-- Count messages by their scores in a queue, or in several lots together.
--
-- KEYS     the queue or lots (zsets body -> score)
-- ARGV     bounds: scores
-- Returns  {how many there are, how many with a score up to the first bound, the second, ...}

local counts = {0}
for bound = 1, #ARGV do counts[bound + 1] = 0 end
for _, lot in ipairs(KEYS) do
  counts[1] = counts[1] + redis.call('ZCARD', lot)
  for bound, highest in ipairs(ARGV) do
    counts[bound + 1] = counts[bound + 1] + redis.call('ZCOUNT', lot, '-inf', highest)
  end
end
return counts
