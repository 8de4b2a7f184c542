-- Give a leader lock up, if it is ours.
-- KEYS    lock
-- ARGV    holder
-- RETURN  1 released, 0 it was not ours
if redis.call('GET', lock) ~= holder then return 0 end
redis.call('DEL', lock)
return 1
