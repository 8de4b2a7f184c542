-- Delete the keys that a queue has once, unless jobs are in flight.
-- The keys are gone at once and their memory is freed beside the work, so it is quick at any size.
-- KEYS    stream others...
-- ARGV    force dry_run
-- RETURN  how many keys were deleted (dry_run 1: would be); below 0, how many jobs are in flight, and
--         nothing was deleted
-- Bells and locks, which live for seconds, go too and are not counted: between a dry run and the
-- removal they would come and go by themselves.
local in_flight = 0
local told = redis.pcall('XINFO', 'GROUPS', stream)
if not told.err then
  for _, info in ipairs(told) do
    for i = 1, #info, 2 do
      if info[i] == 'pending' then in_flight = in_flight + info[i + 1] end
    end
  end
end
if in_flight > 0 and force ~= '1' then return -in_flight end
local count = 0
for _, key in ipairs(KEYS) do
  local left_ms = redis.call('PTTL', key)
  if left_ms == -1 or left_ms > 10000 then count = count + 1 end
end
if dry_run ~= '1' then redis.call('UNLINK', stream, unpack(KEYS, others_from)) end
return count
