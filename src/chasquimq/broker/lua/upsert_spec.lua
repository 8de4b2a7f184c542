-- Store a recurring job, or store it anew; its count of fires goes on, or begins anew if it is none.
-- It rings, so that a scheduler that sleeps fires its first window, even if it is due before all others.
-- KEYS    repeat_set spec wake
-- ARGV    spec_key next_ms blob retry job_id
-- RETURN  1
-- retry and job_id are ours, kept in fields of their own that other schedulers ignore; '' = none.
-- Ends the script before anything is written, where the set is something else.
redis.call('ZRANGE', repeat_set, 0, 0)
redis.call('HSET', spec, 'spec', blob)
redis.call('HDEL', spec, 'retry', 'job_id', 'paused')
if retry ~= '' then redis.call('HSET', spec, 'retry', retry) end
if job_id ~= '' then redis.call('HSET', spec, 'job_id', job_id) end
local fired = redis.call('HGET', spec, 'fired')
if fired and (#fired > 15 or not string.find(fired, '^%d+$')) then redis.call('HDEL', spec, 'fired') end
redis.call('ZADD', repeat_set, next_ms, spec_key)
if redis.pcall('LLEN', wake) == 0 then
  redis.pcall('LPUSH', wake, '1')
  redis.pcall('PEXPIRE', wake, 10000)
end
return 1
