-- Move stranded letters to the dead letters, the oldest first, once those take them.
--
-- KEYS     1 stranded (list)   2 dead letters (list)
-- ARGV     1 at most so many
-- Returns  how many were moved; an error where the dead letters still take none.
--
-- After: each letter lies in exactly one of the two.

local moved = 0
while moved < tonumber(ARGV[1]) and redis.call('LMOVE', KEYS[1], KEYS[2], 'RIGHT', 'LEFT') do
  moved = moved + 1
end
return moved
