-- Put the next attempts of failed deliveries in the delayed set, of those whose entries are still ours.
-- Safe against a concurrent claim: where another consumer has the entry, or it is gone, nothing is
-- written. Members are added before entries go, so that a full server, which refuses the first of
-- them, loses nothing.
-- KEYS    stream delayed events wake indexes...
-- ARGV    group consumer grace_s ts_ms events_cap moves
-- EVENTS  retry-scheduled
-- RETURN  one number a move: 1 relocated, 0 the entry was already settled or belongs to another consumer
-- moves is a MessagePack array without inner structure, groups of 7: entry id, job id, name, member,
-- backoff_ms as text, next attempt, indexed 1/0. Indexes are in the same order.
local asked = cmsgpack.unpack(moves)
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
local earliest, is_earlier = first and tonumber(first) or math.huge, false
local moved, gone = {}, {}
for at = 1, #asked, 7 do
  local entry_id, job_id, name, member = asked[at], asked[at + 1], asked[at + 2], asked[at + 3]
  local held = redis.call('XPENDING', stream, group, entry_id, entry_id, 1)
  local is_ours = #held > 0 and held[1][2] == consumer
  moved[#moved + 1] = is_ours and 1 or 0
  if is_ours then
    local backoff_ms = tonumber(asked[at + 4])
    local run_at = now_ms + backoff_ms
    redis.call('ZADD', delayed, string.format('%.0f', run_at), member)
    gone[#gone + 1] = entry_id
    if asked[at + 6] == 1 then
      local ttl_s = math.max(1, math.floor(backoff_ms / 1000)) + tonumber(grace_s)
      redis.pcall('SET', KEYS[indexes_from + #moved - 1], member, 'EX', ttl_s)
    end
    if run_at < earliest then earliest, is_earlier = run_at, true end
    if events_cap ~= '0' then
      if name ~= '' then
        redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', 'e', 'retry-scheduled', 'id', job_id,
                    'ts', ts_ms, 'n', name, 'attempt', asked[at + 5], 'backoff_ms', asked[at + 4])
      else
        redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', 'e', 'retry-scheduled', 'id', job_id,
                    'ts', ts_ms, 'attempt', asked[at + 5], 'backoff_ms', asked[at + 4])
      end
    end
  end
end
-- In pieces, because `unpack` refuses some 8,000 values.
for from = 1, #gone, 1000 do
  local to = math.min(from + 999, #gone)
  redis.call('XACK', stream, group, unpack(gone, from, to))
  redis.call('XDEL', stream, unpack(gone, from, to))
end
if is_earlier and redis.pcall('LLEN', wake) == 0 then
  redis.pcall('LPUSH', wake, '1')
  redis.call('PEXPIRE', wake, 10000)
end
return moved
