-- Create the consumer group at the start of the stream, unless it is there already.
-- A second group would be told of entries that the first one deletes, so it is refused. On the way
-- consumers are forgotten that killed workers left: nothing is pending under their names, and none has
-- asked for entries for a long time. One that is alive after all comes back with its next read.
-- KEYS    stream
-- ARGV    group gone_ms
-- RETURN  '' joined or created, else the name of the group that has the stream
local function field(info, name)
  for i = 1, #info, 2 do
    if info[i] == name then return info[i + 1] end
  end
end

local other = ''
local groups = redis.pcall('XINFO', 'GROUPS', stream)
if not groups.err then
  for _, info in ipairs(groups) do
    other = field(info, 'name')
    if other == group then
      for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
        if field(consumer, 'pending') == 0 and field(consumer, 'idle') > tonumber(gone_ms) then
          redis.call('XGROUP', 'DELCONSUMER', stream, group, field(consumer, 'name'))
        end
      end
      return ''
    end
  end
end
if other ~= '' then return other end
redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
return ''
