-- Replace what is known of a run, unless what is known is of a later step of it.
-- Two may be at the same run: one that is behind must not undo what the other has come to.
-- KEYS    run
-- ARGV    step note ttl_s
-- RETURN  1 replaced, 0 left as it was
local kept = redis.call('GET', run)
if kept and tonumber(string.match(kept, '^%d+') or 0) > tonumber(step) then return 0 end
redis.call('SET', run, step .. ' ' .. note, 'EX', ttl_s)
return 1
