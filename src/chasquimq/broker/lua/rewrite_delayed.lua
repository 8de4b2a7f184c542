-- Give a delayed job another envelope; it stays due when it was.
-- The new member is added before the old one goes, so that a full server loses nothing.
-- KEYS    delayed index
-- ARGV    member changed
-- RETURN  1 rewritten, 0 it is not delayed any more
local due_ms = redis.call('ZSCORE', delayed, member)
if not due_ms then return 0 end
if changed == member then return 1 end
redis.call('ZADD', delayed, due_ms, changed)
redis.call('ZREM', delayed, member)
if redis.call('EXISTS', index) == 1 then redis.call('SET', index, changed, 'KEEPTTL') end
return 1
