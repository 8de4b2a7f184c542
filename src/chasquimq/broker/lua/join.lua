-- Create the consumer group at the start of the stream, unless it is there already.
-- A second group would be told of entries that the first one deletes, so it is refused.
-- KEYS    stream
-- ARGV    group
-- RETURN  '' joined or created, else the name of the group that has the stream
local groups = redis.pcall('XINFO', 'GROUPS', stream)
local other = ''
if not groups.err then
  for _, info in ipairs(groups) do
    for i = 1, #info, 2 do
      if info[i] == 'name' then
        if info[i + 1] == group then return '' end
        other = info[i + 1]
      end
    end
  end
end
if other ~= '' then return other end
redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
return ''
