-- Let no worker that shares the queue's rate limit take a job for a while.
-- After it the bucket is empty and refills. A hold that lasts longer already stays.
-- KEYS    limiter
-- ARGV    hold_ms duration_ms
-- RETURN  ms for which nothing will be taken
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = math.max(now + hold_ms, tonumber(redis.call('HGET', limiter, 'until') or 0))
local text = string.format('%.0f', ends)
-- `ts` in the future stops workers of the reference engine too: they find no tokens before it.
redis.call('HSET', limiter, 't', '0', 'ts', text, 'until', text)
redis.call('PEXPIRE', limiter, ends - now + 2 * duration_ms)
return ends - now
