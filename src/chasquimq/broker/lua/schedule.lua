-- Put jobs in the delayed set, each with the index that lets it be cancelled by its id.
-- A delay counts from the server's clock, the one that will decide when the job is due.
-- KEYS    delayed events wake sent indexes_and_markers...
-- ARGV    slot serial sent_ttl_s ts_ms events_cap grace_s jobs...
-- EVENTS  delayed
-- RETURN  a text with one character a job: 1 scheduled, 0 the id was taken
-- jobs are groups of 7: job id, member, name, unique 1/0, indexed 1/0, delay_ms, run_at_ms ('' = by
-- delay). Keys stand in pairs, index then marker, in the same order. A marker outlives the due time by
-- grace_s.
local known = redis.call('HGET', sent, slot)
if known then
  local known_serial, outcome = string.match(known, '^(%d+):([01]*)$')
  if known_serial == serial then return outcome end
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
local earliest = first and tonumber(first) or math.huge
local is_earlier = false
local outcome = {}
local key_at = indexes_and_markers_from
for at = jobs_from, #ARGV, 7 do
  local job_id, member, name = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local is_unique, is_indexed = ARGV[at + 3] == '1', ARGV[at + 4] == '1'
  local run_at = tonumber(ARGV[at + 6]) or (now_ms + tonumber(ARGV[at + 5]))
  local wait_ms = math.max(0, run_at - now_ms)
  local ttl_s = math.max(1, math.floor(wait_ms / 1000)) + tonumber(grace_s)
  local index, marker = KEYS[key_at], KEYS[key_at + 1]
  key_at = key_at + 2
  if is_unique and redis.call('EXISTS', marker) == 1 then
    outcome[#outcome + 1] = '0'
  else
    redis.call('ZADD', delayed, string.format('%.0f', run_at), member)
    if is_unique then redis.call('SET', marker, '1', 'EX', ttl_s) end
    if is_indexed then redis.call('SET', index, member, 'EX', ttl_s) end
    if run_at < earliest then earliest, is_earlier = run_at, true end
    if events_cap ~= '0' then
      local told = {events, 'MAXLEN', '~', events_cap, '*',
                    'e', 'delayed', 'id', job_id, 'ts', ts_ms}
      if name ~= '' then told[#told + 1], told[#told + 2] = 'n', name end
      told[#told + 1], told[#told + 2] = 'delay_ms', string.format('%.0f', wait_ms)
      redis.pcall('XADD', unpack(told))
    end
    outcome[#outcome + 1] = '1'
  end
end
if is_earlier and redis.pcall('LLEN', wake) == 0 then
  redis.call('LPUSH', wake, '1')
  redis.call('PEXPIRE', wake, 10000)
end
local text = table.concat(outcome)
redis.call('HSET', sent, slot, serial .. ':' .. text)
redis.call('EXPIRE', sent, sent_ttl_s)
return text
