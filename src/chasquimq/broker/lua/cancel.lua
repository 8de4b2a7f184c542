-- Take a delayed job out again, if it has not been promoted yet.
-- Cancel and promote exclude each other: whichever removes the member first has it.
-- KEYS    delayed index marker
-- ARGV    found
-- RETURN  1 cancelled, 0 it is not delayed any more, -1 no index, or one that outlived its member: look
--         the member up and pass it as found
local member = found
if member == '' then member = redis.call('GET', index) end
if not member then return -1 end
if redis.call('ZREM', delayed, member) == 0 then return found == '' and -1 or 0 end
redis.call('DEL', index, marker)
return 1
