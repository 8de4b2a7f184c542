-- Note that jobs of a run were added, and say how long to wait before more are.
-- All who add for the run share one hand: the time up to which what was added lasts at the run's rate. A
-- hand that has fallen behind is set to now, so that no burst makes up for a pause.
-- KEYS    pace
-- ARGV    count per_s
-- RETURN  ms to wait
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + time[2] / 1000
local hand_ms = math.max(now_ms, tonumber(redis.call('GET', pace) or 0)) + count * 1000 / per_s
local wait_ms = math.ceil(hand_ms - now_ms)
redis.call('SET', pace, string.format('%.3f', hand_ms), 'PX', string.format('%.0f', wait_ms + 1000))
return wait_ms
