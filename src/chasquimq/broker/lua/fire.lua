-- As leader, add the jobs of one due spec and move the spec to its next window, or end it.
-- Fenced: nothing happens unless the spec still stands at the window the caller saw, so a leader that
-- slept past its lock cannot fire a window again. Jobs are added before the spec moves, and whatever
-- could end the script in between is looked at before: it would fire the window again and again.
-- KEYS    lock repeat_set spec stream events
-- ARGV    holder spec_key due next_ms limit ts_ms events_cap jobs...
-- EVENTS  waiting
-- RETURN  {fired, ended 1/0}; {-1, 0} the spec has moved on, its count is none, or another leads
-- jobs are triples: job id, envelope, name. due is the score that was seen, whatever number it is;
-- next_ms '' = no more windows; limit 0 = none.
local standing = redis.call('ZSCORE', repeat_set, spec_key)
if redis.call('GET', lock) ~= holder then return {-1, 0} end
if not standing or tonumber(standing) ~= tonumber(due) then return {-1, 0} end

local most = tonumber(limit)
local counted = redis.call('HGET', spec, 'fired') or '0'
if not string.find(counted, '^%d+$') then return {-1, 0} end
local fired, added = tonumber(counted), 0
for at = jobs_from, #ARGV, 3 do
  if most > 0 and fired >= most then break end
  local job_id, envelope, name = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local entry = {stream, '*', 'd', envelope}
  local told = {events, 'MAXLEN', '~', events_cap, '*', 'e', 'waiting', 'id', job_id, 'ts', ts_ms}
  if name ~= '' then
    entry[5], entry[6] = 'n', name
    told[#told + 1], told[#told + 2] = 'n', name
  end
  redis.call('XADD', unpack(entry))
  if events_cap ~= '0' then redis.pcall('XADD', unpack(told)) end
  fired, added = fired + 1, added + 1
end
if next_ms == '' or (most > 0 and fired >= most) then
  redis.call('ZREM', repeat_set, spec_key)
  redis.call('DEL', spec)
  return {added, 1}
end
if added > 0 then redis.call('HSET', spec, 'fired', string.format('%.0f', fired)) end
redis.call('ZADD', repeat_set, next_ms, spec_key)
return {added, 0}
