-- Remove completed entries from group and stream, and store what their handlers returned.
-- A result is written only for an entry that was still there; lack of memory never keeps an entry.
-- KEYS    stream events results_and_outcomes...
-- ARGV    group has_xackdel ts_ms events_cap result_ttl_s outcome_ttl_s jobs...
-- EVENTS  completed
-- RETURN  one number a job: 1 removed, else it was settled by someone else
-- jobs are groups of 7: entry id, job id, name, attempt, duration_us, has value 1/0, value. With
-- result_ttl_s = 0 there are no result keys; else they stand in pairs, result then outcome.
local entry_ids, removed = {}, {}
for at = jobs_from, #ARGV, 7 do entry_ids[#entry_ids + 1] = ARGV[at] end
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

for i, was_there in ipairs(removed) do
  local at = jobs_from + 7 * (i - 1)
  if was_there == 1 then
    if result_ttl_s ~= '0' then
      local key_at = results_and_outcomes_from + 2 * (i - 1)
      if ARGV[at + 5] == '1' then
        redis.pcall('SET', KEYS[key_at], ARGV[at + 6], 'EX', result_ttl_s)
      end
      redis.pcall('SET', KEYS[key_at + 1], (ARGV[at + 5] == '1' and 'v' or 'n') .. ts_ms,
                  'EX', outcome_ttl_s)
    end
    if events_cap ~= '0' then
      local name = ARGV[at + 2]
      if name ~= '' then
        redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', 'e', 'completed',
                    'id', ARGV[at + 1], 'ts', ts_ms, 'n', name,
                    'attempt', ARGV[at + 3], 'duration_us', ARGV[at + 4])
      else
        redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', 'e', 'completed',
                    'id', ARGV[at + 1], 'ts', ts_ms,
                    'attempt', ARGV[at + 3], 'duration_us', ARGV[at + 4])
      end
    end
  end
end
return removed
