-- Move one delayed job to the stream before its time.
-- It is added before it leaves the set, so that a full server loses nothing. Of this, a promoter and a
-- cancel, the first one has it.
-- KEYS    delayed stream index events
-- ARGV    member ts_ms events_cap job_id name fields...
-- EVENTS  waiting
-- RETURN  1 moved, 0 it is not delayed any more
if not redis.call('ZSCORE', delayed, member) then return 0 end
redis.call('XADD', stream, '*', unpack(ARGV, fields_from))
redis.call('ZREM', delayed, member)
redis.call('DEL', index)
if events_cap ~= '0' then
  local told = {events, 'MAXLEN', '~', events_cap, '*', 'e', 'waiting', 'id', job_id, 'ts', ts_ms}
  if name ~= '' then told[#told + 1], told[#told + 2] = 'n', name end
  redis.pcall('XADD', unpack(told))
end
return 1
