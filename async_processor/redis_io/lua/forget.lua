-- Delete a key of a request if it still names this generation of the request's id.
--
-- KEYS     1 the request's active or cancel key (string)
-- ARGV     1 request token
-- Returns  1 deleted, 0 left alone
-- Used     on Redis Cluster, where the request's keys live in slots of their own.

if redis.call('MGET', KEYS[1])[1] == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
