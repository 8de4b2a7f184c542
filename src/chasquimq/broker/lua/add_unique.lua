-- Put jobs with ids of the caller's choosing on the stream, each only if its id is not taken.
-- The marker is the one that delayed adds use, so an id is unique across both roads and all processes.
-- KEYS    stream events sent markers...
-- ARGV    slot serial sent_ttl_s cap trim ts_ms events_cap marker_ttl_s jobs...
-- EVENTS  waiting
-- RETURN  a text with one character a job: 1 added, 0 the id was taken, F the queue is full
-- jobs are triples: job id, envelope, name; markers stand in the same order.
local known = redis.call('HGET', sent, slot)
if known then
  local known_serial, outcome = string.match(known, '^(%d+):([01F]*)$')
  if known_serial == serial then return outcome end
end

local limit = tonumber(cap)
local depth = redis.call('XLEN', stream)
local outcome = {}
local marker_at = markers_from
for at = jobs_from, #ARGV, 3 do
  local job_id, envelope, name = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local marker = KEYS[marker_at]
  if redis.call('EXISTS', marker) == 1 then
    outcome[#outcome + 1] = '0'
  elseif limit > 0 and trim ~= '1' and depth >= limit then
    outcome[#outcome + 1] = 'F'
  else
    local entry = {stream}
    if trim == '1' and limit > 0 then
      entry[2], entry[3], entry[4] = 'MAXLEN', '~', cap
    end
    entry[#entry + 1] = '*'
    entry[#entry + 1] = 'd'
    entry[#entry + 1] = envelope
    local told = {events, 'MAXLEN', '~', events_cap, '*',
                  'e', 'waiting', 'id', job_id, 'ts', ts_ms}
    if name ~= '' then
      entry[#entry + 1], entry[#entry + 2] = 'n', name
      told[#told + 1], told[#told + 2] = 'n', name
    end
    redis.call('SET', marker, '1', 'EX', marker_ttl_s)
    redis.call('XADD', unpack(entry))
    if events_cap ~= '0' then redis.pcall('XADD', unpack(told)) end
    depth = depth + 1
    outcome[#outcome + 1] = '1'
  end
  marker_at = marker_at + 1
end
local text = table.concat(outcome)
redis.call('HSET', sent, slot, serial .. ':' .. text)
redis.call('EXPIRE', sent, sent_ttl_s)
return text
