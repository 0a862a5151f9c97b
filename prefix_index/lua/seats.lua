-- Who may hold what, and for how long: seats, slots and holders, limits, and what frames every write. See nodes.lua.

local function bump()
  local now = now_us()
  redis.call('HSETNX', reg, 'born', whole(now))
  redis.call('HSET', reg, 'v', whole(max(now, (redis.call('HGET', reg, 'v') or 0) + 1)))
end

-- The generation of a holder, nil where it has no seat, and its slots by claim.
local function seats(holder)
  local record = redis.call('HGET', reg, 'h:' .. holder)
  local slots = {}
  if not record then return nil, slots end
  for claim, slot in string.gmatch(record, '(%a)(%d+)') do slots[claim] = tonumber(slot) end
  return string.match(record, '^%d+'), slots
end

local function set_seats(holder, generation, slots)
  local record = ''
  for claim, slot in pairs(slots) do record = record .. claim .. slot end
  if record == '' then
    redis.call('HDEL', reg, 'h:' .. holder)
  else
    redis.call('HSET', reg, 'h:' .. holder, generation .. ':' .. record)
  end
  bump()
end

local function held(slot)
  return tonumber(redis.call('HGET', reg, 'n:' .. slot) or 0)
end

-- Lists of slots are strings of two bytes each.
local function list(field)
  return redis.call('HGET', reg, field) or ''
end

local function append(field, slot)
  redis.call('HSET', reg, field, list(field) .. struct.pack('>I2', slot))
end

-- The slot of a claim, taken now if need be; nil where a generation is asked for that is not the present one, or where
-- all slots are taken, which the second result says.
local function seat(holder, claim, fence)
  local generation, slots = seats(holder)
  if fence ~= '' and fence ~= generation then return nil end
  if slots[claim] then return slots[claim] end
  local free, slot = list('free'), nil
  if free ~= '' then
    slot = struct.unpack('>I2', sub(free, -2))
    redis.call('HSET', reg, 'free', sub(free, 1, -3))
  else
    slot = tonumber(redis.call('HGET', reg, 'next') or 0)
    if slot == SLOTS then return nil, true end
    redis.call('HSET', reg, 'next', slot + 1)
  end
  slots[claim] = slot
  generation = generation or whole(tick)
  redis.call('HSET', who, slot, generation .. ':' .. claim .. holder)
  redis.call('HINCRBY', reg, 'seats', 1)
  set_seats(holder, generation, slots)
  return slot
end

local function retire(holder, claim)
  local generation, slots = seats(holder)
  local slot = slots[claim]
  slots[claim] = nil
  redis.call('HDEL', who, slot)
  redis.call('HINCRBY', reg, 'seats', -1)
  append(held(slot) > 0 and 'dead' or 'free', slot)
  set_seats(holder, generation, slots)
end

local function stored_bytes()
  local holds, tails = redis.call('ZCARD', lru), redis.call('ZCARD', kids)
  return blocks * BLOCK_BYTES + redis.call('HLEN', nodes) * NODE_BYTES + tails * KID_BYTES + holds * HOLD_BYTES
end

-- Take tails from a slot, least recently used first, down to `to` blocks or, where given, to `to_bytes` of the whole
-- pool. Spares what was used at or after `since`. Returns what the slot has then, and what is left of the budget.
local function shed(slot, to, budget, since, to_bytes)
  local count = held(slot)
  if count <= to then return count, budget end
  local before = count
  local low, high = whole(slot * SPAN), whole(slot * SPAN + (since or SPAN) - 1)
  local oldest = redis.call('ZRANGEBYSCORE', lru, low, high, 'LIMIT', 0, max(0, floor(budget)))
  for _, entry in ipairs(oldest) do
    if count <= to or budget <= 0 or (to_bytes and stored_bytes() <= to_bytes) then break end
    local node = get(sub(entry, 7), 4294967295 - struct.unpack('>I4', sub(entry, 3, 6)))
    budget = budget - 1 - node.blocks / 1024
    local excess = min(count - to, node.blocks)
    local keep = node.blocks - excess
    if keep > 0 and node.bits == with('', slot) then
      trim(node, keep)
    else
      if keep > 0 then node = split(node, keep) end
      drop(slot, node)
    end
    count = count - excess
  end
  redis.call('HINCRBY', reg, 'n:' .. slot, count - before)
  return count, budget
end

-- Let a seat lose what outlived its time. One with nothing left goes, but a short-lived one not before the others of its
-- holder: it would soon be back. Returns what is left of the budget.
local function age(slot, budget)
  local name = redis.call('HGET', who, slot)
  if not name then return budget end
  local at = find(name, ':', 1, true)
  local claim, holder, count = sub(name, at + 1, at + 1), sub(name, at + 2), nil
  count, budget = shed(slot, 0, budget, max(0, tick - (claim == SHORT and short_ms or ttl_ms) * 10))
  if count == 0 then
    local _, slots = seats(holder)
    local others = next(slots, next(slots))
    if claim ~= SHORT or not others then retire(holder, claim) end
  end
  return budget
end

-- Let the next few seats lose what outlived its time, but not `spared`, which is being written.
local function sweep(slots, budget, spared)
  local total = tonumber(redis.call('HGET', reg, 'next') or 0)
  slots = min(slots, total)
  if slots == 0 then return end
  local cursor = redis.call('HINCRBY', reg, 'cursor', slots)
  for at = cursor - slots, cursor - 1 do
    if at % total ~= spared and budget >= 1 then budget = age(at % total, budget) end
  end
end

-- Give back a little of seats that ended.
local function reclaim(budget)
  local dead = list('dead')
  local ended = dead
  while dead ~= '' and budget >= 1 do
    local slot, count = struct.unpack('>I2', dead), nil
    count, budget = shed(slot, 0, budget)
    if count > 0 then break end
    dead, budget = sub(dead, 3), budget - 1
    append('free', slot)
  end
  if dead ~= ended then redis.call('HSET', reg, 'dead', dead) end
end

-- Above the limit of bytes: take from the largest of a few seats, the one just written among them.
local function relieve(slot, budget)
  if max_bytes == 0 or stored_bytes() <= max_bytes then return end
  local total = tonumber(redis.call('HGET', reg, 'next') or 0)
  if total == 0 then return end
  local cursor = redis.call('HINCRBY', reg, 'cursor', 3)
  local largest, most = slot, slot and held(slot) or 0
  for at = cursor, cursor + 2 do
    local blocks_there = held(at % total)
    if blocks_there > most then largest, most = at % total, blocks_there end
  end
  if largest then shed(largest, 0, budget, nil, max_bytes) end
end

-- Every write starts here: whole keys, a new tick.
local function begin(keys, args)
  open(keys)
  ttl_ms, short_ms, max_bytes = tonumber(args[1]), tonumber(args[2]), tonumber(args[3])
  local stored, tails = redis.pcall('HLEN', nodes), redis.pcall('ZCARD', kids)
  local state = redis.call('HMGET', reg, 't', 'blocks', 'roots', 'seats')
  blocks, roots = tonumber(state[2] or 0), tonumber(state[3] or 0)
  local keys_due = (blocks > 0 and 1 or 0) + (tonumber(state[4] or 0) > 0 and 1 or 0)
  -- A server short of memory may evict single keys; what is left of the index then is not an index. `kids` lists every
  -- node that is no root; `lru` is there where blocks are, and `who` where seats are.
  local evicted = type(stored) ~= 'number' or type(tails) ~= 'number' or stored - tails ~= roots -- or of another type
  if evicted or redis.call('EXISTS', lru, who) ~= keys_due then
    redis.call('UNLINK', nodes, lru, kids, reg, who)
    state, blocks, roots = {}, 0, 0
  end
  local now = now_us()
  tick = max(floor((now - EPOCH_US) / 100), (state[1] or 0) + 1)
  second = floor(now / 1000000)
end

-- Every write ends here, `slot` being the one it wrote to: old things go, and what is kept is kept for a while.
local function finish(slot, budget)
  reclaim(RECLAIMED)
  if tick % EVERY == 0 then sweep(1, EXPIRED, slot) end
  relieve(slot, budget or SHED)
  redis.call('HSET', reg, 't', whole(tick), 'blocks', whole(blocks), 'roots', whole(roots))
  for _, key in ipairs({ nodes, lru, kids, reg, who }) do redis.call('PEXPIRE', key, ttl_ms) end
end
