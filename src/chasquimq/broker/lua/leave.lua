-- Forget a consumer that has stopped, once nothing is pending under its name.
-- Deleting it would delete its claims with it. So what it handed back is passed on first, to the consumer
-- that asked last: whoever reads claims it there as well. If there is no other, or if leases have to run
-- out, it stays; put_back makes what nobody can be passed wait again, and then it can go.
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

for _, row in ipairs(other and held or {}) do
  local entry_id, _, idle, deliveries = unpack(row)
  if idle >= tonumber(idle_ms) then
    redis.call('XCLAIM', stream, group, other, 0, entry_id,
               'IDLE', idle, 'RETRYCOUNT', deliveries, 'JUSTID')
  end
end
if #redis.call('XPENDING', stream, group, '-', '+', 1, consumer) > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
return 1
