-- Add the jobs of a run, each once however often it is sent: to the stream, or to the delayed set.
-- What a run has added stands in a set, so that a part of it that is carried out again adds nothing.
-- KEYS    stream delayed events wake seen indexes_and_markers...
-- ARGV    seen_ttl_s cap ts_ms events_cap grace_s jobs...
-- EVENTS  waiting delayed
-- RETURN  a text with one character a job: 1 added, 0 this run had added it, T its id was taken;
--         it ends before the first job for which the queue has no room
-- jobs are groups of 6: job id, name, envelope, unique 1/0, delay_ms, run_at_ms ('' = by delay). Those
-- that are unique or have a time have a pair of keys, index then marker, in the same order.
local function add(list, ...)
  for _, each in ipairs({...}) do list[#list + 1] = each end
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local limit, depth = tonumber(cap), redis.call('XLEN', stream)
local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
local earliest = first and tonumber(first) or math.huge
local is_earlier = false
local outcome = {}
local key_at = indexes_and_markers_from
for at = jobs_from, #ARGV, 6 do
  local job_id, name, envelope, is_unique = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3] == '1'
  local delay_ms = tonumber(ARGV[at + 4])
  local run_at = tonumber(ARGV[at + 5]) or (now_ms + delay_ms)
  local wait_ms = math.max(0, run_at - now_ms)
  local index, marker
  if is_unique or delay_ms > 0 or ARGV[at + 5] ~= '' then
    index, marker = KEYS[key_at], KEYS[key_at + 1]
    key_at = key_at + 2
  end
  if redis.call('SISMEMBER', seen, job_id) == 1 then
    outcome[#outcome + 1] = '0'
  elseif is_unique and redis.call('EXISTS', marker) == 1 then
    outcome[#outcome + 1] = 'T'
  elseif wait_ms == 0 and depth >= limit then
    break
  else
    local told = {events, 'MAXLEN', '~', events_cap, '*'}
    local ttl_s = math.floor(wait_ms / 1000) + tonumber(grace_s)
    if wait_ms > 0 then
      -- A name has at most 256 bytes: two of the four that give its length are always 0.
      local member = string.char(#name % 256, math.floor(#name / 256), 0, 0) .. name .. envelope
      redis.call('ZADD', delayed, string.format('%.0f', run_at), member)
      redis.call('SET', index, member, 'EX', ttl_s)
      if run_at < earliest then earliest, is_earlier = run_at, true end
      add(told, 'e', 'delayed', 'id', job_id, 'ts', ts_ms)
      if name ~= '' then add(told, 'n', name) end
      add(told, 'delay_ms', string.format('%.0f', wait_ms))
    else
      local entry = {stream, '*', 'd', envelope}
      if name ~= '' then add(entry, 'n', name) end
      redis.call('XADD', unpack(entry))
      depth = depth + 1
      add(told, 'e', 'waiting', 'id', job_id, 'ts', ts_ms)
      if name ~= '' then add(told, 'n', name) end
    end
    redis.call('SADD', seen, job_id)
    if is_unique then redis.call('SET', marker, '1', 'EX', ttl_s) end
    if events_cap ~= '0' then redis.pcall('XADD', unpack(told)) end
    outcome[#outcome + 1] = '1'
  end
end
redis.call('EXPIRE', seen, seen_ttl_s)
if is_earlier and redis.pcall('LLEN', wake) == 0 then
  redis.call('LPUSH', wake, '1')
  redis.call('PEXPIRE', wake, 10000)
end
return table.concat(outcome)
