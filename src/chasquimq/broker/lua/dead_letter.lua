-- Move a delivery to the dead-letter stream, if the entry is still ours.
-- The dead letter is written before the entry goes, so that a full server loses nothing.
-- KEYS    stream dlq outcome result events
-- ARGV    group consumer entry_id dlq_cap outcome_ttl_s outcome_text ts_ms events_cap job_id name attempt reason fields...
-- EVENTS  dlq
-- RETURN  1 relocated, 0 the entry was already settled or belongs to another consumer
-- fields are the dead letter's own, name and value in turn. outcome_ttl_s 0 = keep no outcome. A value
-- that an earlier job of the same id left goes: it would pass for this one's.
local held = redis.call('XPENDING', stream, group, entry_id, entry_id, 1)
if #held == 0 or held[1][2] ~= consumer then return 0 end

redis.call('XADD', dlq, 'MAXLEN', '~', dlq_cap, '*', unpack(ARGV, fields_from))
redis.call('XACK', stream, group, entry_id)
redis.call('XDEL', stream, entry_id)
if outcome_ttl_s ~= '0' then
  redis.pcall('SET', outcome, outcome_text, 'EX', outcome_ttl_s)
  redis.call('DEL', result)
end
if events_cap ~= '0' then
  local told = {events, 'MAXLEN', '~', events_cap, '*', 'e', 'dlq', 'id', job_id, 'ts', ts_ms}
  if name ~= '' then told[#told + 1], told[#told + 2] = 'n', name end
  told[#told + 1], told[#told + 2] = 'attempt', attempt
  told[#told + 1], told[#told + 2] = 'reason', reason
  redis.pcall('XADD', unpack(told))
end
return 1
