-- Give a delayed job another time. A delay counts from the server's clock.
-- KEYS    delayed index marker events wake
-- ARGV    member delay_ms run_at_ms grace_s ts_ms events_cap job_id name
-- EVENTS  delayed
-- RETURN  1 it has another time, 0 it is not delayed any more
-- run_at_ms '' = by delay. Index and marker, where there are any, live until grace_s after the new time.
if not redis.call('ZSCORE', delayed, member) then return 0 end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local run_at = tonumber(run_at_ms) or (now_ms + tonumber(delay_ms))
local wait_ms = math.max(0, run_at - now_ms)
local ttl_s = math.max(1, math.floor(wait_ms / 1000)) + tonumber(grace_s)
redis.call('ZADD', delayed, string.format('%.0f', run_at), member)
redis.call('EXPIRE', index, ttl_s)
redis.call('EXPIRE', marker, ttl_s)
if redis.call('ZRANK', delayed, member) == 0 and redis.pcall('LLEN', wake) == 0 then
  redis.pcall('LPUSH', wake, '1')
  redis.call('PEXPIRE', wake, 10000)
end
if events_cap ~= '0' then
  local told = {events, 'MAXLEN', '~', events_cap, '*', 'e', 'delayed', 'id', job_id, 'ts', ts_ms}
  if name ~= '' then told[#told + 1], told[#told + 2] = 'n', name end
  told[#told + 1], told[#told + 2] = 'delay_ms', string.format('%.0f', wait_ms)
  redis.pcall('XADD', unpack(told))
end
return 1
