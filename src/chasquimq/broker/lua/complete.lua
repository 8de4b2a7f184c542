-- Remove completed entries from group and stream, and store what their handlers returned.
-- A result is written only for an entry that was still there; lack of memory never keeps an entry.
-- KEYS    stream events results_and_outcomes...
-- ARGV    group ts_ms events_cap result_ttl_s outcome_ttl_s started done
-- EVENTS  active completed
-- RETURN  one number a job: 1 removed, else it was settled by someone else
-- started and done are MessagePack arrays without inner structure. started holds groups of 6 for
-- runs that began lately: job id, name, ts, attempt, wait_ms, created_at_ms. done holds groups of 6:
-- entry id, job id, name, attempt, duration_us, value (false = none). With result_ttl_s = 0 there are
-- no result keys; else they stand in pairs, result then outcome.
local began, jobs = cmsgpack.unpack(started), cmsgpack.unpack(done)
local removed, gone = {}, {}
for at = 1, #jobs, 6 do
  local was_there = redis.call('XACK', stream, group, jobs[at])
  removed[#removed + 1] = was_there
  if was_there == 1 then gone[#gone + 1] = jobs[at] end
end

-- Entries at the head of the stream go together, at half the cost. None may wait before the first that
-- is in flight; and it must add up that all that is there waits, is in flight, or is ours: what another
-- hand acknowledged, or passed over, is not ours to delete.
local function trimmed()
  local groups, facts = redis.call('XINFO', 'GROUPS', stream), {}
  for i = 1, #groups[1], 2 do facts[groups[1][i]] = groups[1][i + 1] end
  local waiting, held, last = facts['lag'], facts['pending'], facts['last-delivered-id']
  if #groups > 1 or not waiting or redis.call('XLEN', stream) ~= waiting + held + #gone then return end
  if held == 0 then
    local ms, seq = string.match(last, '^(%d+)-(%d+)$')
    if #seq > 15 then return end
    return redis.call('XTRIM', stream, 'MINID', string.format('%s-%.0f', ms, seq + 1))
  end
  local first = redis.call('XPENDING', stream, group, '-', '+', 1)[1][1]
  if #redis.call('XRANGE', stream, '(' .. last, '(' .. first, 'COUNT', 1) > 0 then return end
  return redis.call('XTRIM', stream, 'MINID', first)
end
-- For fewer it is not worth the questions; and who may not ask them deletes one by one.
if #gone < 32 or select(2, pcall(trimmed)) ~= #gone then
  -- In pieces, because `unpack` refuses some 8,000 values.
  for at = 1, #gone, 1000 do
    redis.call('XDEL', stream, unpack(gone, at, math.min(at + 999, #gone)))
  end
end

-- The cap is minded at every hundredth event: a node of the stream has as many.
local told = 0
local function tell(event, id, ts, name, ...)
  told = told + 1
  if name == '' then
    redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', 'e', event, 'id', id, 'ts', ts, ...)
  elseif told % 100 == 1 then
    redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', 'e', event, 'id', id, 'ts', ts,
                'n', name, ...)
  else
    redis.pcall('XADD', events, '*', 'e', event, 'id', id, 'ts', ts, 'n', name, ...)
  end
end
for at = 1, #began, 6 do
  tell('active', began[at], began[at + 2], began[at + 1], 'attempt', began[at + 3],
       'wait_ms', began[at + 4], 'created_at_ms', began[at + 5])
end

local with_value, without = 'v' .. ts_ms, 'n' .. ts_ms
for i, was_there in ipairs(removed) do
  local at = 6 * (i - 1)
  if was_there == 1 and result_ttl_s ~= '0' then
    local key_at, value = results_and_outcomes_from + 2 * (i - 1), jobs[at + 6]
    if value then
      redis.pcall('SET', KEYS[key_at], value, 'EX', result_ttl_s)
    else
      -- An earlier job of the same id may have left one, which would pass for this one's.
      redis.call('DEL', KEYS[key_at])
    end
    redis.pcall('SET', KEYS[key_at + 1], value and with_value or without, 'EX', outcome_ttl_s)
  end
  if was_there == 1 and events_cap ~= '0' then
    tell('completed', jobs[at + 2], ts_ms, jobs[at + 3], 'attempt', jobs[at + 4],
         'duration_us', jobs[at + 5])
  end
end
return removed
