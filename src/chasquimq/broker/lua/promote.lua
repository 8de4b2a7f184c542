-- As leader, move due jobs from the delayed set to the stream. The server's clock says what is due.
-- A member is added to the stream before it leaves the set, so that an error loses nothing; what is
-- not a member of ours goes to the DLQ, or is put off where that takes nothing, and cannot hold up the
-- others. A server without memory promotes too, and tells nobody: the job takes no more room in the
-- stream, and only those who run it make room.
-- KEYS    lock delayed stream events dlq
-- ARGV    holder lock_ttl_s batch cap events_cap dlq_cap
-- EVENTS  waiting
-- RETURN  {is leader 1/0, promoted, set aside, put off, depth, lag_ms of the oldest still due, ms until
--         the next is due (-1 = none), when that is (empty = none), entry id of the last promoted
--         (0-0 = none), job ids...}
local leader = redis.call('GET', lock)
if leader and leader ~= holder then return {0, 0, 0, 0, 0, 0, -1, '', '0-0'} end
local locked = redis.pcall('SET', lock, holder, 'EX', lock_ttl_s)
local is_full = locked.err ~= nil
if is_full then
  if not string.find(locked.err, 'OOM', 1, true) then return locked end
  -- A script is refused memory for its first write only: this is one that needs none.
  redis.call('DEL', lock)
  redis.call('SET', lock, holder, 'EX', lock_ttl_s)
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local room = math.min(tonumber(batch), math.max(0, tonumber(cap) - redis.call('XLEN', stream)))
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now_ms, 'LIMIT', 0, room)

local function split(member)
  local first, a, b, c = string.byte(member, 1, 4)
  if not c then return nil end
  local length = first + a * 256 + b * 65536 + c * 16777216
  if 4 + length < #member then
    return string.sub(member, 5, 4 + length), string.sub(member, 5 + length)
  end
  if first >= 0x90 and first <= 0x9f then return '', member end
  return nil
end

local function id_of(envelope)
  local kind = string.byte(envelope, 2) or 0
  if kind >= 0xa0 and kind <= 0xbf then return string.sub(envelope, 3, 2 + kind - 0xa0) end
  local length = string.byte(envelope, 3) or 0
  if kind == 0xd9 then return string.sub(envelope, 4, 3 + length) end
  if kind ~= 0xda then return '' end
  return string.sub(envelope, 5, 4 + length * 256 + (string.byte(envelope, 4) or 0))
end

local put_off_ms = 10000
local ids, late, last_id, text_now = {}, 0, '0-0', string.format('%.0f', now_ms)
for _, member in ipairs(due) do
  local is_late, name, envelope = false, split(member)
  if not envelope then
    local letter = redis.pcall('XADD', dlq, 'MAXLEN', '~', dlq_cap, '*', 'd', member,
                               'source_id', '0-0', 'reason', 'malformed',
                               'detail', 'not a delayed member', 'failed_at', text_now)
    is_late = letter.err ~= nil
    if is_late then redis.call('ZADD', delayed, now_ms + put_off_ms, member) end
  else
    local entry = {stream, '*', 'd', envelope}
    local told = {events, 'MAXLEN', '~', events_cap, '*',
                  'e', 'waiting', 'id', id_of(envelope), 'ts', text_now}
    if name ~= '' then
      entry[5], entry[6] = 'n', name
      told[#told + 1], told[#told + 2] = 'n', name
    end
    last_id = redis.call('XADD', unpack(entry))
    if events_cap ~= '0' and not is_full then redis.pcall('XADD', unpack(told)) end
    ids[#ids + 1] = id_of(envelope)
  end
  if is_late then late = late + 1 else redis.call('ZREM', delayed, member) end
end
local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
local wait_ms = first and math.floor(tonumber(first) - now_ms) or -1
local answer = {1, #ids, #due - #ids - late, late, redis.call('ZCARD', delayed),
                first and math.max(0, -wait_ms) or 0, first and math.max(0, wait_ms) or -1,
                first or '', last_id}
-- One by one: `unpack` refuses some 8,000 values, which would hide what has been done already.
for _, job_id in ipairs(ids) do answer[#answer + 1] = job_id end
return answer
