-- Forget a consumer that has stopped, if nothing is pending under its name.
-- A consumer with pending entries stays: deleting it would delete its claims on them with it.
-- KEYS    stream
-- ARGV    group consumer
-- RETURN  1 forgotten, 0 it still has deliveries
local held = redis.call('XPENDING', stream, group, '-', '+', 1, consumer)
if #held > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
return 1
