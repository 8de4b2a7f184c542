-- Forget jobs that completed: their results, how they ended, and what they said on the way.
-- KEYS    job_keys...
-- ARGV    dry_run keys_per_job done_before_ms
-- RETURN  a text with one character a job: 1 forgotten (dry_run 1: would be), 0 it failed, is too young,
--         or nothing is kept of it
-- job_keys are keys_per_job for each job, the outcome first, then the result. done_before_ms '' = of any
-- age; else a result without an outcome stays: nobody noted when it was written.
local answers, size, latest = {}, tonumber(keys_per_job), tonumber(done_before_ms)
for first = job_keys_from, #KEYS, size do
  local outcome = redis.call('GET', KEYS[first])
  local is_ours
  if outcome then
    local done_ms = tonumber(string.sub(outcome, 2))
    is_ours = string.sub(outcome, 1, 1) ~= 'f'
      and (not latest or (done_ms and done_ms <= latest))
  else
    is_ours = not latest and redis.call('EXISTS', KEYS[first + 1]) == 1
  end
  if is_ours and dry_run ~= '1' then
    redis.call('DEL', unpack(KEYS, first, first + size - 1))
  end
  answers[#answers + 1] = is_ours and '1' or '0'
end
return table.concat(answers)
