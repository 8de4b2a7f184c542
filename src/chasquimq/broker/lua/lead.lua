-- Take or renew a leader lock.
-- KEYS    lock
-- ARGV    holder ttl_s
-- RETURN  1 we lead, 0 another holder does
local leader = redis.call('GET', lock)
if leader and leader ~= holder then return 0 end
redis.call('SET', lock, holder, 'EX', ttl_s)
return 1
