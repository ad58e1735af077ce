-- Renew a reader's lease and name the readers whose lease has ended.
--
-- KEYS  1 readers (sorted set: reader, end of its lease in ms)
-- ARGV  1 reader   2 lease, ms
-- Returns the readers that are dead: what they took is to be returned (return_results).

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. now)
