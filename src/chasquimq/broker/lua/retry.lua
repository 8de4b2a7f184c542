-- Put a failed delivery's next attempt in the delayed set, if the entry is still ours.
-- Safe against a concurrent claim: when another consumer has the entry, or it is gone, nothing is
-- written. The member is added before the entry goes, so that a full server loses nothing.
-- KEYS    stream delayed index events wake
-- ARGV    group consumer entry_id backoff_ms member grace_s indexed ts_ms events_cap job_id name attempt
-- EVENTS  retry-scheduled
-- RETURN  1 relocated, 0 the entry was already settled or belongs to another consumer
local held = redis.call('XPENDING', stream, group, entry_id, entry_id, 1)
if #held == 0 or held[1][2] ~= consumer then return 0 end

local time = redis.call('TIME')
local run_at = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(backoff_ms)
redis.call('ZADD', delayed, string.format('%.0f', run_at), member)
redis.call('XACK', stream, group, entry_id)
redis.call('XDEL', stream, entry_id)
if indexed == '1' then
  local ttl_s = math.max(1, math.floor(tonumber(backoff_ms) / 1000)) + tonumber(grace_s)
  redis.pcall('SET', index, member, 'EX', ttl_s)
end
if redis.call('ZRANK', delayed, member) == 0 and redis.pcall('LLEN', wake) == 0 then
  redis.pcall('LPUSH', wake, '1')
  redis.call('PEXPIRE', wake, 10000)
end
if events_cap ~= '0' then
  local told = {events, 'MAXLEN', '~', events_cap, '*',
                'e', 'retry-scheduled', 'id', job_id, 'ts', ts_ms}
  if name ~= '' then told[#told + 1], told[#told + 2] = 'n', name end
  told[#told + 1], told[#told + 2] = 'attempt', attempt
  told[#told + 1], told[#told + 2] = 'backoff_ms', backoff_ms
  redis.pcall('XADD', unpack(told))
end
return 1
