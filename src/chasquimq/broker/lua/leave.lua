-- Forget a consumer that has stopped, once nothing is pending under its name.
-- Deleting it would delete its claims with it. So what it handed back is passed on first, to the consumer
-- that asked last: whoever reads claims it there as well. If there is no other, those behind the last
-- delivery that counts wait again. A consumer with other deliveries stays: their leases have to run out.
-- KEYS    stream
-- ARGV    group consumer idle_ms most
-- RETURN  1 forgotten, 0 it still has deliveries
-- idle_ms is how long a delivery that was handed back counts as silent.
local held = redis.call('XPENDING', stream, group, '-', '+', most, consumer)
local other, least = nil, nil
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local facts = {}
  for i = 1, #info, 2 do facts[info[i]] = info[i + 1] end
  if facts.name ~= consumer and (not least or facts.idle < least) then
    other, least = facts.name, facts.idle
  end
end

local again, is_again = {}, {}
for at = #held, 1, -1 do
  local entry_id, _, idle, deliveries = unpack(held[at])
  if other and idle >= tonumber(idle_ms) then
    redis.call('XCLAIM', stream, group, other, 0, entry_id,
               'IDLE', idle, 'RETRYCOUNT', deliveries, 'JUSTID')
  elseif not other and #held < tonumber(most) and deliveries == 0 and #again == #held - at then
    again[#again + 1], is_again[entry_id] = entry_id, true
  end
end
-- What was acknowledged and stayed in the stream, as another hand may do, must not come again with them.
for _, info in ipairs(#again > 0 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local facts = {}
  for i = 1, #info, 2 do facts[info[i]] = info[i + 1] end
  if facts.name == group then
    local last = facts['last-delivered-id']
    for _, entry in ipairs(redis.call('XRANGE', stream, again[#again], last, 'COUNT', #again + 1)) do
      if not is_again[entry[1]] then return 0 end
    end
    -- Nor may what nobody was given yet be passed over, where somebody had set the group back before.
    if #redis.call('XRANGE', stream, '(' .. last, '(' .. again[#again], 'COUNT', 1) > 0 then return 0 end
  end
end
if #again > 0 then
  local before = redis.call('XREVRANGE', stream, '(' .. again[#again], '-', 'COUNT', 1)[1]
  redis.call('XACK', stream, group, unpack(again))
  redis.call('XGROUP', 'SETID', stream, group, before and before[1] or '0-0')
end
if #redis.call('XPENDING', stream, group, '-', '+', 1, consumer) > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
return 1
