-- Make deliveries that were never started wait again, each in its place: their queue is paused, or the
-- last worker leaves. The group is set back to before them, which wakes no reader. Where one behind them
-- is being run they stay pending, idle and uncounted instead, and whoever reads first claims them.
-- KEYS    stream
-- ARGV    group consumer idle_ms most alone entries...
-- RETURN  how many were put back
-- alone is 1 if the group is to be set back only while it has no other consumer: one may be blocked.
-- entries are pairs in the order of the stream: entry id, earlier deliveries.
local count = 0
for at = entries_from, #ARGV, 2 do
  local entry_id, deliveries = ARGV[at], ARGV[at + 1]
  local held = redis.call('XPENDING', stream, group, entry_id, entry_id, 1)
  if #held == 1 and held[1][2] == consumer then
    redis.call('XCLAIM', stream, group, consumer, 0, entry_id,
               'IDLE', idle_ms, 'RETRYCOUNT', deliveries, 'JUSTID')
    count = count + 1
  end
end
if alone == '1' and #redis.call('XINFO', 'CONSUMERS', stream, group) > 1 then return count end

-- A pending entry without deliveries is one that was put or handed back, by us now or by others before.
-- Settled entries are not in the stream, so those behind the last delivery that counts can be read anew.
local first = nil
for _, row in ipairs(redis.call('XPENDING', stream, group, 'IDLE', idle_ms, '-', '+', most)) do
  if row[4] == 0 then
    first = row[1]
    break
  end
end
if not first then return count end
local pending = redis.call('XPENDING', stream, group, first, '+', most)
if #pending == tonumber(most) then return count end
local again, is_again = {}, {}
for at = #pending, 1, -1 do
  local entry_id, _, _, deliveries = unpack(pending[at])
  if deliveries ~= 0 then break end
  again[#again + 1], is_again[entry_id], first = entry_id, true, entry_id
end
if #again == 0 then return count end

local last = nil
for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local facts = {}
  for i = 1, #info, 2 do facts[info[i]] = info[i + 1] end
  if facts.name == group then last = facts['last-delivered-id'] end
end
local passed = redis.call('XRANGE', stream, first, last, 'COUNT', #again + 1)
-- What was acknowledged and stayed in the stream, as another hand may do, must not come again with them.
for _, entry in ipairs(passed) do
  if not is_again[entry[1]] then return count end
end
redis.call('XACK', stream, group, unpack(again))
-- Where somebody had set the group back to before them, it must not be moved on: what lies between was
-- given to nobody.
if #passed > 0 then
  local before = redis.call('XREVRANGE', stream, '(' .. first, '-', 'COUNT', 1)[1]
  redis.call('XGROUP', 'SETID', stream, group, before and before[1] or '0-0')
end
return count
