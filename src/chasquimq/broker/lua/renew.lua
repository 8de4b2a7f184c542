-- Renew the leases of deliveries that are still ours; leave those that another consumer has.
-- Without the check a blind claim would steal back a job from the worker that rescued it.
-- KEYS    stream
-- ARGV    group consumer entry_ids...
-- RETURN  the entry ids that are not ours any more
local ours, lost = {}, {}
for at = entry_ids_from, #ARGV do
  local entry_id = ARGV[at]
  local held = redis.call('XPENDING', stream, group, entry_id, entry_id, 1)
  if #held == 1 and held[1][2] == consumer then
    ours[#ours + 1] = entry_id
  else
    lost[#lost + 1] = entry_id
  end
end
if #ours > 0 then
  ours[#ours + 1] = 'JUSTID'
  redis.call('XCLAIM', stream, group, consumer, 0, unpack(ours))
end
return lost
