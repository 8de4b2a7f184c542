-- Give deliveries that were never started back to the group, without counting them as runs.
-- While others wait in the stream the entry keeps its place: it is made idle, and the next reader that
-- looks claims it first. When nothing waits, readers are blocked and only a new entry wakes them.
-- KEYS    stream
-- ARGV    group consumer idle_ms entries...
-- RETURN  how many were handed back
-- entries are triples: entry id, earlier deliveries, 1 if the entry may be written anew.
local has_backlog, may_be_anew = true, false
for at = entries_from, #ARGV, 3 do may_be_anew = may_be_anew or ARGV[at + 2] == '1' end
for _, info in ipairs(may_be_anew and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local facts = {}
  for i = 1, #info, 2 do facts[info[i]] = info[i + 1] end
  if facts.name == group then
    local after = '(' .. facts['last-delivered-id']
    has_backlog = #redis.call('XRANGE', stream, after, '+', 'COUNT', 1) > 0
  end
end

local count = 0
for at = entries_from, #ARGV, 3 do
  local entry_id, deliveries = ARGV[at], ARGV[at + 1]
  local held = redis.call('XPENDING', stream, group, entry_id, entry_id, 1)
  if #held == 1 and held[1][2] == consumer then
    -- Looked at only where it is needed: an entry may be hundreds of megabytes.
    local entry = not has_backlog and ARGV[at + 2] == '1'
        and redis.call('XRANGE', stream, entry_id, entry_id)[1]
    -- A server without memory refuses a new entry: then nobody is woken, and who looks claims it.
    if entry and type(redis.pcall('XADD', stream, '*', unpack(entry[2]))) == 'string' then
      redis.call('XACK', stream, group, entry_id)
      redis.call('XDEL', stream, entry_id)
    else
      redis.call('XCLAIM', stream, group, consumer, 0, entry_id,
                 'IDLE', idle_ms, 'RETRYCOUNT', deliveries, 'JUSTID')
    end
    count = count + 1
  end
end
return count
