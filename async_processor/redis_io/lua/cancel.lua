-- Mark one request as cancelled.
--
-- KEYS  1 request-active:<id>   2 request-cancel:<id>
-- ARGV  1 the generation to cancel (its token), or '' for the one submitted last
--       2 lifetime of the mark, seconds
-- Returns 1 if it is marked now, 0 if there is nothing to cancel.
--
-- After: the mark holds the token of the very generation that is active, so that a later request
-- under the same id is not hit.

local active = redis.call('GET', KEYS[1])
if not active or (ARGV[1] ~= '' and ARGV[1] ~= active) then
  return 0
end
redis.call('SET', KEYS[2], active, 'EX', ARGV[2])
return 1
