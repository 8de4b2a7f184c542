-- Add the jobs of a run, each once however often it is sent: to the stream, or to the delayed set.
-- What a run has added stands in a set, so that a part of it that is carried out again adds nothing.
-- KEYS    stream delayed events wake seen indexes_and_markers...
-- ARGV    seen_ttl_s cap ts_ms events_cap grace_s jobs
-- EVENTS  waiting delayed
-- RETURN  a text with one character a job: 1 added, 0 this run had added it, T its id was taken;
--         it ends before the first job for which the queue has no room
-- jobs is a MessagePack array without inner structure, groups of 6: job id, name, envelope,
-- unique 1/0, delay_ms, run_at_ms ('' = by delay). Those that are unique or have a time have a pair of
-- keys, index then marker, in the same order.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- These two also end the script, before anything is written, where a key is of another type.
local limit, depth = tonumber(cap), redis.call('XLEN', stream)
local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
local earliest = first and tonumber(first) or math.huge
local is_earlier = false

local function tell(event, job_id, name, ...)
  if events_cap == '0' then return end
  if name == '' then
    return redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*',
                       'e', event, 'id', job_id, 'ts', ts_ms, ...)
  end
  redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*',
              'e', event, 'id', job_id, 'ts', ts_ms, 'n', name, ...)
end

local function add_now(job_id, name, envelope)
  if name ~= '' then
    redis.call('XADD', stream, '*', 'd', envelope, 'n', name)
  else
    redis.call('XADD', stream, '*', 'd', envelope)
  end
  depth = depth + 1
  tell('waiting', job_id, name)
end

local function add_later(job_id, name, envelope, run_at, index, ttl_s)
  -- A name has at most 256 bytes: two of the four that give its length are always 0.
  local member = string.char(#name % 256, math.floor(#name / 256), 0, 0) .. name .. envelope
  redis.call('ZADD', delayed, string.format('%.0f', run_at), member)
  redis.call('SET', index, member, 'EX', ttl_s)
  if run_at < earliest then earliest, is_earlier = run_at, true end
  tell('delayed', job_id, name, 'delay_ms', string.format('%.0f', run_at - now_ms))
end

local asked, outcome, key_at = cmsgpack.unpack(jobs), {}, indexes_and_markers_from
for at = 1, #asked, 6 do
  local job_id, name, envelope = asked[at], asked[at + 1], asked[at + 2]
  local is_unique, delay_ms, run_at = asked[at + 3] == 1, asked[at + 4], asked[at + 5]
  local is_plain = not is_unique and delay_ms == 0 and run_at == ''
  local index, marker = KEYS[key_at], KEYS[key_at + 1]
  if not is_plain then key_at = key_at + 2 end
  if run_at == '' then run_at = now_ms + delay_ms end
  local is_later, done = run_at > now_ms, '1'
  if is_plain and depth < limit then
    -- The usual case, with one look at the set instead of two.
    if redis.call('SADD', seen, job_id) == 1 then add_now(job_id, name, envelope) else done = '0' end
  elseif redis.call('SISMEMBER', seen, job_id) == 1 then
    done = '0'
  elseif is_unique and redis.call('EXISTS', marker) == 1 then
    done = 'T'
  elseif not is_later and depth >= limit then
    break
  else
    local ttl_s = math.floor(math.max(0, run_at - now_ms) / 1000) + grace_s
    if is_later then add_later(job_id, name, envelope, run_at, index, ttl_s)
    else add_now(job_id, name, envelope) end
    redis.call('SADD', seen, job_id)
    if is_unique then redis.call('SET', marker, '1', 'EX', ttl_s) end
  end
  outcome[#outcome + 1] = done
end
redis.call('EXPIRE', seen, seen_ttl_s)
if is_earlier and redis.pcall('LLEN', wake) == 0 then
  redis.call('LPUSH', wake, '1')
  redis.call('PEXPIRE', wake, 10000)
end
return table.concat(outcome)
