-- As leader, add the jobs of one due spec and move the spec to its next window, or end it.
-- Fenced: nothing happens unless the spec still stands at the window the caller saw, so a leader that
-- slept past its lock cannot fire a window again. Jobs are added before the spec moves.
-- KEYS    lock repeat_set spec stream events
-- ARGV    holder spec_key due_ms next_ms limit ts_ms events_cap jobs...
-- EVENTS  waiting
-- RETURN  {fired, ended 1/0}; {-1, 0} the spec has moved on, or another leads
-- jobs are triples: job id, envelope, name. next_ms '' = no more windows; limit 0 = none.
local standing = redis.call('ZSCORE', repeat_set, spec_key)
if redis.call('GET', lock) ~= holder then return {-1, 0} end
if not standing or tonumber(standing) ~= tonumber(due_ms) then return {-1, 0} end

local most = tonumber(limit)
local fired = tonumber(redis.call('HGET', spec, 'fired') or '0')
local added = 0
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
  fired = redis.call('HINCRBY', spec, 'fired', 1)
  added = added + 1
end
if next_ms == '' or (most > 0 and fired >= most) then
  redis.call('ZREM', repeat_set, spec_key)
  redis.call('DEL', spec)
  return {added, 1}
end
redis.call('ZADD', repeat_set, next_ms, spec_key)
return {added, 0}
