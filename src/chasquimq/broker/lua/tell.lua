-- Write events, in their order. One that is refused, by a server without memory, keeps no other from
-- being written.
-- KEYS    events
-- ARGV    events_cap told
-- EVENTS  told
-- RETURN  nothing; an error, and nothing was written, where the server takes no writes for now
-- told is a MessagePack array without inner structure: for each event the number of its fields and
-- values, then these. The cap is minded at every hundredth: a node of the stream has as many.
local given = cmsgpack.unpack(told)
local at, written = 1, 0
while at <= #given do
  local last = at + given[at]
  if written == 0 then
    local added = redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', unpack(given, at + 1, last))
    local refused = type(added) == 'table' and added.err or ''
    local passes = string.match(refused, 'READONLY') or string.match(refused, 'NOREPLICAS')
    if passes then return redis.error_reply(passes .. ' of the first event') end
  elseif written % 100 == 0 then
    redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', unpack(given, at + 1, last))
  else
    redis.pcall('XADD', events, '*', unpack(given, at + 1, last))
  end
  at, written = last + 1, written + 1
end
