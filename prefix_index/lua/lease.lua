-- Who consumes the KV events of an endpoint: at most one replica at a time.
--
-- KEYS     leases, {pg:VERSION:POOL}:lease:NAME
-- ARGV[1]  replica
-- ARGV[2]  milliseconds to hold them for; 0: give them back
-- returns  for each lease 1 where the replica holds it now, else 0
-- TTL      ARGV[2], from every renewal on

local replica, ttl_ms = ARGV[1], tonumber(ARGV[2])
local held = {}
for at, lease in ipairs(KEYS) do
  local owner = redis.call('GET', lease)
  held[at] = 0
  if ttl_ms == 0 then
    if owner == replica then
      redis.call('DEL', lease)
    end
  elseif not owner or owner == replica then
    redis.call('SET', lease, replica, 'PX', ttl_ms)
    held[at] = 1
  end
end
return held
