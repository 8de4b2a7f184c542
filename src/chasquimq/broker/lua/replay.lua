-- Send dead letters round again, each only if it is still in the dead-letter stream.
-- The job is added before the dead letter goes, so that a full server loses nothing; two replays at
-- once cannot both find the same letter.
-- KEYS    dlq stream events outcomes...
-- ARGV    ts_ms events_cap letters...
-- EVENTS  waiting
-- RETURN  how many were moved
-- letters are groups of 4: dlq id, envelope, name, job id; outcomes stand in the same order.
local moved = 0
local outcome_at = outcomes_from
for at = letters_from, #ARGV, 4 do
  local dlq_id, envelope, name, job_id = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  if #redis.call('XRANGE', dlq, dlq_id, dlq_id) == 1 then
    local entry = {stream, '*', 'd', envelope}
    local told = {events, 'MAXLEN', '~', events_cap, '*',
                  'e', 'waiting', 'id', job_id, 'ts', ts_ms}
    if name ~= '' then
      entry[5], entry[6] = 'n', name
      told[#told + 1], told[#told + 2] = 'n', name
    end
    redis.call('XADD', unpack(entry))
    redis.call('XDEL', dlq, dlq_id)
    redis.call('DEL', KEYS[outcome_at])
    if events_cap ~= '0' then redis.pcall('XADD', unpack(told)) end
    moved = moved + 1
  end
  outcome_at = outcome_at + 1
end
return moved
