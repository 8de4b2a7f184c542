-- Forget a recurring job.
-- KEYS    repeat_set spec
-- ARGV    spec_key
-- RETURN  1 removed, 0 there was none
local removed = redis.call('ZREM', repeat_set, spec_key)
return math.max(removed, redis.call('DEL', spec))
