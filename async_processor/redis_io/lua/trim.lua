-- Drop the oldest items of a list that has grown over its limit.
--
-- KEYS     1 the list, newest first
-- ARGV     1 how many items may stay
-- Returns  how many were dropped.

local dropped = redis.call('LLEN', KEYS[1]) - tonumber(ARGV[1])
if dropped <= 0 then return 0 end
redis.call('LTRIM', KEYS[1], 0, ARGV[1] - 1)
return dropped
