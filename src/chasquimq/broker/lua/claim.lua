-- Take over deliveries whose lease ran out, for servers whose XREADGROUP cannot.
-- KEYS    stream
-- ARGV    group consumer min_idle_ms count
-- RETURN  a list of {entry id, fields or false if the entry was deleted, idle_ms, earlier deliveries}
local idle = redis.call('XPENDING', stream, group, 'IDLE', min_idle_ms, '-', '+', count)
local taken = {}
for _, row in ipairs(idle) do
  local entry_id = row[1]
  local claimed = redis.call('XCLAIM', stream, group, consumer, min_idle_ms, entry_id)
  local entry = claimed[1]
  taken[#taken + 1] = {entry_id, entry and entry[2] or false, row[3], row[4]}
end
return taken
