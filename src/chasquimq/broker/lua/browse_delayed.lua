-- List a page of the delayed set beyond a place in it.
-- The place stays the same while others come and go; a rank would not, every promotion shifts it. Places are compared as the server orders members, by
-- score, then byte by byte; Lua's own comparison of texts would follow the locale.
-- KEYS    delayed
-- ARGV    backwards count score mark
-- RETURN  members and scores in turn, in rising order
-- backwards 1 = what stands before the place. mark is how the last member seen begins, score its score;
-- score '' = from the very start, or the very end.
local is_back = backwards == '1'
local from = is_back and redis.call('ZCARD', delayed) or 0

local function compared(member)
  for i = 1, #mark do
    local a, b = string.byte(member, i) or -1, string.byte(mark, i)
    if a ~= b then return a < b and -1 or 1 end
  end
  return 0
end

if score ~= '' then
  local low = redis.call('ZCOUNT', delayed, '-inf', '(' .. score)
  local high = redis.call('ZCOUNT', delayed, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local order = compared(redis.call('ZRANGE', delayed, middle, middle)[1])
    if order < 0 or (order == 0 and not is_back) then low = middle + 1 else high = middle end
  end
  from = low
end
local first = is_back and math.max(0, from - tonumber(count)) or from
local last = is_back and from - 1 or from + tonumber(count) - 1
if last < first then return {} end
return redis.call('ZRANGE', delayed, first, last, 'WITHSCORES')
