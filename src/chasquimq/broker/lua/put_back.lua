-- Make deliveries that were never started wait again, each in its place: their queue is paused.
-- The group is set back to before them, which wakes no reader. Where one behind them is being run they
-- stay pending, idle and uncounted instead, and whoever reads first claims them.
-- KEYS    stream
-- ARGV    group consumer idle_ms most entries...
-- RETURN  how many were put back
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
local again = {}
for at = #pending, 1, -1 do
  if pending[at][4] ~= 0 then break end
  again[#again + 1] = pending[at][1]
end
if #again > 0 then
  local before = redis.call('XREVRANGE', stream, '(' .. again[#again], '-', 'COUNT', 1)[1]
  redis.call('XACK', stream, group, unpack(again))
  redis.call('XGROUP', 'SETID', stream, group, before and before[1] or '0-0')
end
return count
