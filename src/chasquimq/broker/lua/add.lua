-- Put fresh jobs on the stream, unless the queue is full or this very call was carried out before.
-- A call is remembered by its place in the producer's ring, so that it can be sent again after a break.
-- KEYS    stream events sent
-- ARGV    slot serial sent_ttl_s cap trim whole ts_ms events_cap jobs
-- EVENTS  waiting
-- RETURN  {jobs added, depth afterwards}; with whole = 1 all jobs or none, else as many as fit
-- jobs is a MessagePack array without inner structure, groups of 3: job id, envelope, name.
-- cap 0 = no limit; trim 1 = drop the oldest instead.
local known = redis.call('HGET', sent, slot)
if known then
  local known_serial, added = string.match(known, '^(%d+):(%d+)$')
  if known_serial == serial then
    return {tonumber(added), redis.call('XLEN', stream)}
  end
end

local asked = cmsgpack.unpack(jobs)
local depth = redis.call('XLEN', stream)
local wanted = #asked / 3
local limit = tonumber(cap)
local fits = wanted
if limit > 0 and trim ~= '1' and depth + wanted > limit then
  fits = math.max(0, limit - depth)
  if whole == '1' then fits = 0 end
end

local trims = trim == '1' and limit > 0
-- The cap of the events is minded at every hundredth: a node of their stream has as many.
for at = 1, 3 * fits, 3 do
  local envelope, name = asked[at + 1], asked[at + 2]
  if trims then
    redis.call('XADD', stream, 'MAXLEN', '~', cap, '*', 'd', envelope,
               unpack(name ~= '' and {'n', name} or {}))
  elseif name ~= '' then
    redis.call('XADD', stream, '*', 'd', envelope, 'n', name)
  else
    redis.call('XADD', stream, '*', 'd', envelope)
  end
  if events_cap ~= '0' then
    local id = asked[at]
    if name == '' then
      redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*',
                  'e', 'waiting', 'id', id, 'ts', ts_ms)
    elseif at % 300 == 1 then
      redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*',
                  'e', 'waiting', 'id', id, 'ts', ts_ms, 'n', name)
    else
      redis.pcall('XADD', events, '*', 'e', 'waiting', 'id', id, 'ts', ts_ms, 'n', name)
    end
  end
end
if fits > 0 then
  redis.call('HSET', sent, slot, serial .. ':' .. fits)
  redis.call('EXPIRE', sent, sent_ttl_s)
end
return {fits, redis.call('XLEN', stream)}
