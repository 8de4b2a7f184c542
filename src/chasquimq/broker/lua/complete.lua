-- Remove completed entries from group and stream, and store what their handlers returned.
-- A result is written only for an entry that was still there; lack of memory never keeps an entry.
-- KEYS    stream events results_and_outcomes...
-- ARGV    group has_xackdel ts_ms events_cap result_ttl_s outcome_ttl_s started done
-- EVENTS  active completed
-- RETURN  one number a job: 1 removed, else it was settled by someone else
-- started and done are MessagePack arrays without inner structure. started holds groups of 6 for
-- runs that began lately: job id, name, ts, attempt, wait_ms, created_at_ms. done holds groups of 6:
-- entry id, job id, name, attempt, duration_us, value (false = none). With result_ttl_s = 0 there are
-- no result keys; else they stand in pairs, result then outcome.
local began, jobs = cmsgpack.unpack(started), cmsgpack.unpack(done)
local entry_ids, removed = {}, {}
for at = 1, #jobs, 6 do entry_ids[#entry_ids + 1] = jobs[at] end
-- In pieces, because `unpack` refuses some 8,000 values.
for first = 1, #entry_ids, 1000 do
  local last = math.min(first + 999, #entry_ids)
  if has_xackdel == '1' then
    local flags = redis.call('XACKDEL', stream, group, 'IDS', last - first + 1,
                             unpack(entry_ids, first, last))
    for i, flag in ipairs(flags) do removed[first + i - 1] = flag end
  else
    local gone = {}
    for i = first, last do
      removed[i] = redis.call('XACK', stream, group, entry_ids[i])
      if removed[i] == 1 then gone[#gone + 1] = entry_ids[i] end
    end
    if #gone > 0 then redis.call('XDEL', stream, unpack(gone)) end
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
