-- List a page of the entries that wait, those in flight left out.
-- KEYS    stream
-- ARGV    backwards first last count
-- RETURN  {entries looked at, id of the last of them or '', entries that wait...}
-- first and last are bounds as XRANGE takes them. In flight is what any group has pending.
local page
if backwards == '1' then
  page = redis.call('XREVRANGE', stream, last, first, 'COUNT', count)
else
  page = redis.call('XRANGE', stream, first, last, 'COUNT', count)
end
if #page == 0 then return {0, ''} end

local groups = {}
for _, info in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  for i = 1, #info, 2 do
    if info[i] == 'name' then groups[#groups + 1] = info[i + 1] end
  end
end

local answer = {#page, page[#page][1]}
for _, entry in ipairs(page) do
  local is_held = false
  for _, group in ipairs(groups) do
    is_held = is_held or #redis.call('XPENDING', stream, group, entry[1], entry[1], 1) > 0
  end
  if not is_held then answer[#answer + 1] = entry end
end
return answer
