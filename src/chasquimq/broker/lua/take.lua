-- Take as many entries as the queue's rate limit allows now; none while the queue is paused.
-- A token is spent for each entry that is taken, and for no other. The bucket is the one of the reference
-- engine: `t` tokens at `ts`, refilled by the server's clock. `until` is ours: nothing is taken before.
-- KEYS    stream paused limiter
-- ARGV    group consumer count max duration_ms min_idle_ms claiming
-- RETURN  {is paused 1/0, ms to wait for a token (0 = there were some), entries that were allowed,
--         id of the newest entry if nothing was taken, entries...}
-- claiming of expired leases: 'read' = XREADGROUP can, 'look' = it cannot, '' = not now. Entries are pairs
-- {entry id, fields}, or as in claim.lua.
if redis.call('EXISTS', paused) == 1 then return {1, 0, 0, ''} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most, per_ms = tonumber(max), tonumber(max) / tonumber(duration_ms)
local kept = redis.call('HMGET', limiter, 't', 'ts', 'until')
local held_ms = (tonumber(kept[3]) or 0) - now
if held_ms > 0 then return {0, held_ms, 0, ''} end
-- A clock that went back, after a failover perhaps, refills nothing and takes nothing away.
local since = math.min(now, tonumber(kept[2]) or now)
local tokens = math.min(most, (tonumber(kept[1]) or most) + (now - since) * per_ms)
local allowed = math.floor(math.min(tonumber(count), tokens))
if allowed < 1 then return {0, math.max(1, math.ceil((1 - tokens) / per_ms)), 0, ''} end

local function keep(left)
  redis.call('HSET', limiter, 't', string.format('%.9f', left), 'ts', string.format('%.0f', now))
  redis.call('PEXPIRE', limiter, 2 * duration_ms)
end

local function refused(reply)
  if not reply or not reply.err then return false end
  keep(tokens)
  return true
end

-- Before the read: a server without memory refuses this, and then nothing has been taken.
keep(tokens - allowed)
local taken = {}
if claiming == 'look' then
  local idle = redis.pcall('XPENDING', stream, group, 'IDLE', min_idle_ms, '-', '+', allowed)
  if refused(idle) then return idle end
  for _, row in ipairs(idle) do
    local entry = redis.call('XCLAIM', stream, group, consumer, min_idle_ms, row[1])[1]
    taken[#taken + 1] = {row[1], entry and entry[2] or false, row[3], row[4]}
  end
end
if #taken < allowed then
  local ask = {'XREADGROUP', 'GROUP', group, consumer, 'COUNT', allowed - #taken}
  if claiming == 'read' then ask[7], ask[8] = 'CLAIM', min_idle_ms end
  ask[#ask + 1], ask[#ask + 2], ask[#ask + 3] = 'STREAMS', stream, '>'
  local reply = redis.pcall(unpack(ask))
  if refused(reply) then return reply end
  for _, row in ipairs(reply and reply[1][2] or {}) do taken[#taken + 1] = row end
end
if #taken < allowed then keep(tokens - #taken) end

local answer = {0, 0, allowed, ''}
for _, row in ipairs(taken) do answer[#answer + 1] = row end
if #taken == 0 then
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then answer[4] = info[i + 1] end
  end
end
return answer
