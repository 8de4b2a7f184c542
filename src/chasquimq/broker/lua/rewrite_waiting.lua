-- Give a job that waits another envelope; it goes to the tail, as a new entry.
-- The new entry is added before the old one goes, so that a full server loses nothing. What any group
-- has pending is in flight and stays as it is.
-- KEYS    stream
-- ARGV    entry_id fields...
-- RETURN  1 rewritten, 0 in flight or gone
local told = redis.pcall('XINFO', 'GROUPS', stream)
if told.err then return 0 end
for _, info in ipairs(told) do
  for i = 1, #info, 2 do
    if info[i] == 'name'
      and #redis.call('XPENDING', stream, info[i + 1], entry_id, entry_id, 1) > 0 then
      return 0
    end
  end
end
if #redis.call('XRANGE', stream, entry_id, entry_id) == 0 then return 0 end
redis.call('XADD', stream, '*', unpack(ARGV, fields_from))
redis.call('XDEL', stream, entry_id)
return 1
