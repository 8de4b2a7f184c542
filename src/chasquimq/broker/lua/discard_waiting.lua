-- Delete entries that wait, each with the keys of its job; what is in flight stays.
-- In flight is what any group has pending, whatever name the caller knows the group by. A reader that
-- comes first keeps its job, one that comes later never sees it.
-- KEYS    stream job_keys...
-- ARGV    dry_run keys_per_job entry_ids...
-- RETURN  a text with one character an entry: 1 deleted (dry_run 1: would be), 0 in flight or gone
-- job_keys stand in the order of entry_ids, keys_per_job for each; with them a unique id is free again.
local groups = {}
local told = redis.pcall('XINFO', 'GROUPS', stream)
if not told.err then
  for _, info in ipairs(told) do
    for i = 1, #info, 2 do
      if info[i] == 'name' then groups[#groups + 1] = info[i + 1] end
    end
  end
end

local function is_held(entry_id)
  for _, group in ipairs(groups) do
    if #redis.call('XPENDING', stream, group, entry_id, entry_id, 1) > 0 then return true end
  end
  return false
end

local answers, size = {}, tonumber(keys_per_job)
for at = entry_ids_from, #ARGV do
  local entry_id, answer = ARGV[at], '0'
  if not is_held(entry_id) then
    if dry_run == '1' then
      answer = tostring(#redis.call('XRANGE', stream, entry_id, entry_id))
    elseif redis.call('XDEL', stream, entry_id) == 1 then
      local first = job_keys_from + size * (at - entry_ids_from)
      redis.call('DEL', unpack(KEYS, first, first + size - 1))
      answer = '1'
    end
  end
  answers[#answers + 1] = answer
end
return table.concat(answers)
