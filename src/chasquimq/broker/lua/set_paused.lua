-- Pause a queue, or let it go on; the key stays until somebody resumes, whoever comes and goes.
-- KEYS    paused resumed events
-- ARGV    wanted ts_ms events_cap
-- EVENTS  paused resumed
-- RETURN  1 changed, 0 it was so already
-- wanted 1 = pause, 0 = go on. The key holds the time of the pause, for people; only its being counts.
-- resumed is the bell on which paused readers block. A queue that was not paused rings it too: somebody
-- may have deleted the key by hand. Without memory the pause ends all the same, only the bell is mute.
local is_paused = redis.call('EXISTS', paused) == 1
if wanted ~= '1' then
  redis.call('DEL', paused)
  redis.pcall('XADD', resumed, 'MAXLEN', 1, '*', 'e', 'resumed')
  redis.call('EXPIRE', resumed, 10)
end
if is_paused == (wanted == '1') then return 0 end
local told
if wanted == '1' then
  redis.call('SET', paused, ts_ms)
  told = {'e', 'paused', 'id', '', 'ts', ts_ms}
else
  told = {'e', 'resumed', 'id', '', 'ts', ts_ms}
end
if events_cap ~= '0' then
  redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', unpack(told))
end
return 1
