-- The functions of the library. What they work on, and KEYS, which are the same for all, is explained in nodes.lua.

-- ARGV chain, version the caller knows, beat the caller knows
-- Returns {version, born, slot and generation:holder pairs if the version differs, now in us, bits and end pairs along the
-- path, blocks walked, 1 if cut by the cap, replica and beat and loads triples newer than the caller's}
local function match(keys, args)
  open(keys)
  local chain, version, beat = args[1], args[2], tonumber(args[3])
  local at, total, hops, cut = 0, #chain / 8, 0, 0
  local path, previous = {}, nil
  while at < total do
    local value = redis.call('HGET', nodes, sub(chain, at * 8 + 1, at * 8 + 8))
    if not value then break end
    if hops == WALKED then cut = 1 break end
    hops = hops + 1
    local high, low = byte(value, 9, 10)
    local head = 10 + high * 256 + low
    local taken = common(value, head, chain, at)
    at = at + taken
    local bits = sub(value, 11, head)
    if bits ~= previous then path[#path + 1] = bits path[#path + 1] = at previous = bits else path[#path] = at end
    if taken < 1 + (#value - head) / 8 then break end
  end
  local known = redis.call('HMGET', reg, 'v', 'born')
  local current, born, names = known[1] or '0', known[2] or '0', {}
  if current ~= version then names = redis.call('HGETALL', who) end
  local now, news, all = now_us(), {}, redis.call('HGETALL', beats)
  for i = 1, #all, 2 do
    local published = tonumber(all[i + 1])
    if published > beat or beat > now then
      news[#news + 1] = all[i]
      news[#news + 1] = all[i + 1]
      news[#news + 1] = redis.call('HGET', loads, all[i]) or ''
    end
  end
  return { current, born, names, whole(now), path, at, cut, news }
end

-- ARGV ttl_ms, holder, chain, generation or '' for any, capacity in blocks where none is set
-- Returns blocks that were new; 0 for a generation that has passed
local function observe(keys, args)
  local ttl_ms, holder, chain = tonumber(args[1]), args[2], args[3]
  local tick = begin(keys, ttl_ms)
  local total = #chain / 8
  if total == 0 or (args[4] ~= '' and args[4] ~= generation(holder)) then finish(ttl_ms) return 0 end
  local slot = seat(holder)
  if not slot then return redis.error_reply('PGFULL all slots of holders are taken') end
  local mine, score = with('', slot), whole(slot * SPAN + tick)
  local at, added, parent, order = 0, 0, nil, {}
  while at < total do
    local name = sub(chain, at * 8 + 1, at * 8 + 8)
    local node = get(name, at)
    if not node then
      local rest = sub(chain, at * 8 + 9)
      if parent and parent.bits == mine and #children(parent, 1) == 0 then
        parent.rest = parent.rest .. name .. rest
        put(parent)
      else
        put({ name = name, prev = parent and last(parent) or NO_PREV, bits = mine, rest = rest })
        if parent then redis.call('ZADD', kids, 0, last(parent) .. name) end
        order[#order + 1] = score
        order[#order + 1] = member(slot, at, name)
      end
      added = added + total - at
      break
    end
    if #order == WALKED * 2 then break end
    local taken = common(name .. node.rest, 8, chain, at)
    local mine_already = has(node.bits, slot)
    -- A chain that ends inside an edge its holder has already needs no split.
    if taken < length(node) and (at + taken < total or not mine_already) then split(node, taken) end
    if not mine_already then
      node.bits = with(node.bits, slot)
      put(node)
      added = added + taken
    end
    order[#order + 1] = score
    order[#order + 1] = member(slot, at, name)
    at = at + taken
    parent = node
  end
  redis.call('ZADD', lru, unpack(order))
  local count = redis.call('HINCRBY', reg, 'n:' .. slot, added)
  local capacity = tonumber(redis.call('HGET', reg, 'c:' .. holder) or args[5])
  if count > capacity then shed(slot, capacity - floor(capacity / 64), SHED + #order) end
  finish(ttl_ms)
  return added
end

-- The node in which a slot holds block `block` of a chain.
local function holding(slot, chain, block)
  local at = 0
  for _ = 1, WALKED do
    local node = get(sub(chain, at * 8 + 1, at * 8 + 8), at)
    if not node or not has(node.bits, slot) then return nil end
    local taken = common(node.name .. node.rest, 8, chain, at)
    if block < at + taken then return node end
    if taken < length(node) then return nil end
    at = at + taken
  end
end

-- A node and all that the slot holds under it, parents first; nil where that takes more visits than allowed.
local function below(slot, top)
  local found, visits, at = { top }, 1, 1
  while found[at] do
    local node = found[at]
    local start = node.start + length(node)
    for _, entry in ipairs(children(node, VISITED + 1 - visits)) do
      visits = visits + 1
      local child = get(sub(entry, 9), start)
      if has(child.bits, slot) then found[#found + 1] = child end
    end
    if visits > VISITED then return nil end
    at = at + 1
  end
  return found
end

local function lose(holder, slot, chain, block)
  local node = holding(slot, chain, block)
  if not node then return 0 end
  local keep = block - node.start
  if keep > 0 then
    if node.bits == with('', slot) and #children(node, 1) == 0 then
      local lost = length(node) - keep
      node.rest = sub(node.rest, 1, (keep - 1) * 8)
      put(node)
      redis.call('HINCRBY', reg, 'n:' .. slot, -lost)
      return lost
    end
    node = split(node, keep)
  end
  local found, lost = below(slot, node), 0
  if not found then
    lost = held(slot)
    retire(holder, slot)
    return lost
  end
  for at = #found, 1, -1 do
    lost = lost + length(found[at])
    drop(slot, found[at])
  end
  redis.call('HINCRBY', reg, 'n:' .. slot, -lost)
  return lost
end

-- ARGV ttl_ms, holder, chain, first block lost
-- Returns blocks lost, on all branches; a holder with too much below that block loses everything
local function forget(keys, args)
  local ttl_ms, holder, chain, block = tonumber(args[1]), args[2], args[3], tonumber(args[4])
  begin(keys, ttl_ms)
  local slot, lost = slot_of(holder), 0
  if slot and block >= 0 and block < #chain / 8 then lost = lose(holder, slot, chain, block) end
  finish(ttl_ms)
  return lost
end

-- ARGV ttl_ms, holder, blocks to keep
-- Returns blocks held then; more than asked where the bound on nodes was reached: call again
local function evict(keys, args)
  local ttl_ms = tonumber(args[1])
  begin(keys, ttl_ms)
  local slot = slot_of(args[2])
  local left = slot and shed(slot, max(0, tonumber(args[3])), EVICTED) or 0
  finish(ttl_ms)
  return left
end

-- ARGV ttl_ms, holder
-- Ends the generation: nothing matches any more
local function clear(keys, args)
  local ttl_ms, holder = tonumber(args[1]), args[2]
  begin(keys, ttl_ms)
  local slot = slot_of(holder)
  if slot then retire(holder, slot) end
  finish(ttl_ms)
  return 1
end

-- ARGV ttl_ms, holder, generation that ended, or '' for the present one
-- Returns the generation now; nothing happens where the one named had ended already (another replica saw it first)
local function raise_generation(keys, args)
  local ttl_ms, holder = tonumber(args[1]), args[2]
  begin(keys, ttl_ms)
  if args[3] == '' or args[3] == generation(holder) then
    redis.call('HINCRBY', reg, 'g:' .. holder, 1)
    local slot = slot_of(holder)
    if slot then retire(holder, slot) end
  end
  finish(ttl_ms)
  return tonumber(generation(holder))
end

-- ARGV ttl_ms, holder, capacity in blocks
local function set_capacity(keys, args)
  local ttl_ms = tonumber(args[1])
  begin(keys, ttl_ms)
  redis.call('HSET', reg, 'c:' .. args[2], args[3])
  finish(ttl_ms)
  return 1
end

-- ARGV ttl_ms, replica, loads (opaque)
-- Replaces what this replica said before; forgets replicas that have long been silent
local function publish(keys, args)
  open(keys)
  local now = now_us()
  local beat = max(now, (redis.call('HGET', reg, 'b') or 0) + 1)
  redis.call('HSET', reg, 'b', whole(beat))
  redis.call('HSET', beats, args[2], whole(beat))
  redis.call('HSET', loads, args[2], args[3])
  local all = redis.call('HGETALL', beats)
  for i = 1, #all, 2 do
    if now - all[i + 1] > SILENT_US then
      redis.call('HDEL', beats, all[i])
      redis.call('HDEL', loads, all[i])
    end
  end
  for _, key in ipairs({ beats, loads, reg }) do redis.call('PEXPIRE', key, args[1]) end
  return 1
end

-- ARGV holder
-- Returns blocks held
local function count(keys, args)
  open(keys)
  local slot = slot_of(args[1])
  return slot and held(slot) or 0
end

redis.register_function { function_name = LIB .. '_match', callback = match, flags = { 'no-writes' } }
redis.register_function { function_name = LIB .. '_count', callback = count, flags = { 'no-writes' } }
redis.register_function { function_name = LIB .. '_observe', callback = observe }
redis.register_function { function_name = LIB .. '_forget', callback = forget, flags = { 'allow-oom' } }
redis.register_function { function_name = LIB .. '_evict', callback = evict, flags = { 'allow-oom' } }
redis.register_function { function_name = LIB .. '_clear', callback = clear, flags = { 'allow-oom' } }
redis.register_function { function_name = LIB .. '_raise', callback = raise_generation, flags = { 'allow-oom' } }
redis.register_function { function_name = LIB .. '_capacity', callback = set_capacity }
redis.register_function { function_name = LIB .. '_publish', callback = publish }
