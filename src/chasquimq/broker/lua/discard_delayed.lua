-- Delete members of the delayed set, each with the keys of its job.
-- Whoever removes a member first has it: a promoter, a cancel, or this.
-- KEYS    delayed job_keys...
-- ARGV    dry_run keys_per_job members...
-- RETURN  a text with one character a member: 1 deleted (dry_run 1: would be), 0 it was gone
-- job_keys stand in the order of members, keys_per_job for each; with them a unique id is free again.
local answers, size = {}, tonumber(keys_per_job)
for at = members_from, #ARGV do
  local member, answer = ARGV[at], '0'
  if dry_run == '1' then
    answer = redis.call('ZSCORE', delayed, member) and '1' or '0'
  elseif redis.call('ZREM', delayed, member) == 1 then
    local first = job_keys_from + size * (at - members_from)
    redis.call('DEL', unpack(KEYS, first, first + size - 1))
    answer = '1'
  end
  answers[#answers + 1] = answer
end
return table.concat(answers)
