-- The functions of the library. What they work on, and KEYS, which are the same for all, is explained in nodes.lua.
-- ARGV of every write begins with LIMITS: ttl_ms, speculative_ms, max_bytes (0: none).
-- Claims are letters; where a call may name several, they stand side by side.

-- ARGV chain, version the caller knows, beat the caller knows
-- Returns {version, born, slot and generation:claim holder pairs if the version differs, now in us, bits and end and second
-- of last use triples along the path, blocks walked, 1 if cut by the cap, replica and beat and loads triples newer than
-- the caller's}
local function match(keys, args)
  open(keys)
  local chain, version, beat = args[1], args[2], tonumber(args[3])
  local at, total, hops, cut = 0, #chain / 8, 0, 0
  local path, size, previous = {}, 0, nil
  while at < total do
    local value = redis.call('HGET', nodes, sub(chain, at * 8 + 1, at * 8 + 8))
    if not value then break end
    if hops == WALKED then cut = 1 break end
    hops = hops + 1
    local head = 15 + byte(value, 14)
    local taken = common(value, head, chain, at)
    at = at + taken
    local bits = sub(value, 13, head)
    if bits ~= previous then path[size + 1] = bits size = size + 3 previous = bits end
    path[size - 1] = at
    path[size] = sub(value, 9, 12)
    if taken < 1 + (#value - head) / 8 then break end
  end
  local known = redis.call('HMGET', reg, 'v', 'born')
  local current, born, names = known[1] or '0', known[2] or '0', {}
  if current ~= version then names = redis.call('HGETALL', who) end
  local now, news, all = now_us(), {}, redis.call('HGETALL', beats)
  for i = 1, #all, 2 do
    local published = tonumber(all[i + 1]) or 0
    if published > beat or beat > now then
      news[#news + 1] = all[i]
      news[#news + 1] = all[i + 1]
      news[#news + 1] = redis.call('HGET', loads, all[i]) or ''
    end
  end
  return { current, born, names, whole(now), path, at, cut, news }
end

-- Give a slot the rest of a chain from block `at` on, under `parent`; nothing of it is stored. Returns the node it is in
-- now: the parent, where that is a leaf of this slot alone.
local function grow(slot, parent, chain, at, used)
  local name, text = sub(chain, at * 8 + 1, at * 8 + 8), sub(chain, at * 8 + 9)
  local mine = with('', slot)
  blocks = blocks + #chain / 8 - at
  if parent and parent.bits == mine and #children(parent, 1) == 0 then
    set_rest(parent, rest(parent) .. name .. text)
    put(parent)
    return parent
  end
  local node = { name = name, start = at, prev = parent and last(parent) or NO_PREV, used = used, bits = mine }
  set_rest(node, text)
  put(node)
  if parent then redis.call('ZADD', kids, 0, node.prev .. name) else roots = roots + 1 end
  return node
end

-- Whether a node was used long enough ago to say so anew: one that is hot is not rewritten each time.
local function is_stale(node)
  local age_s = second - struct.unpack('>I4', node.used)
  return age_s >= FRESH_S or age_s < 0
end

-- Give a slot every node along a chain, making what is missing. Returns the path, parents first, and blocks new.
local function cover(slot, chain)
  local at, total, added, path = 0, #chain / 8, 0, {}
  local used = struct.pack('>I4', second)
  while at < total do
    local node = get(sub(chain, at * 8 + 1, at * 8 + 8), at)
    if not node then
      node = grow(slot, path[#path], chain, at, used)
      added = added + total - at
      if node ~= path[#path] then path[#path + 1] = node end
      break
    end
    if #path == WALKED then break end
    local taken = common(node.value, node.head, chain, at)
    local mine_already, stale = has(node.bits, slot), is_stale(node)
    -- A chain that ends inside an edge its holder has already needs no split.
    if taken < node.blocks and (at + taken < total or not mine_already) then split(node, taken) end
    if not mine_already then
      node.bits = with(node.bits, slot)
      added = added + taken
    end
    if stale then node.used = used end
    if stale or not mine_already then put(node) end
    at = at + taken
    path[#path + 1] = node
  end
  return path, added
end

-- Make the seat's path the newest it has, and one node of what needs no two.
local function touch(slot, path)
  local order, score = {}, whole(slot * SPAN + tick)
  for at, node in ipairs(path) do order[at * 2 - 1], order[at * 2] = score, member(slot, node) end
  redis.call('ZADD', lru, unpack(order))
  for at = #path, max(2, #path - JOINED + 1), -1 do
    if not join(path[at - 1], path[at]) then break end
  end
end

-- ARGV LIMITS, holder, claim, chain, generation or '' for any, capacity in blocks
-- Returns blocks that were new; 0 for a generation that is not the present one
local function observe(keys, args)
  begin(keys, args)
  local holder, claim, chain, fence, capacity = args[4], args[5], args[6], args[7], tonumber(args[8])
  if chain == '' then finish() return 0 end
  local slot, full = seat(holder, claim, fence)
  if not slot then
    finish()
    return full and redis.error_reply('PGFULL all slots of holders are taken') or 0
  end
  if claim == SHORT then shed(slot, 0, SHED, max(0, tick - short_ms * 10)) end
  local path, added = cover(slot, chain)
  touch(slot, path)
  local count = redis.call('HINCRBY', reg, 'n:' .. slot, added)
  local budget = SHED + 2 * #path
  if count > capacity then shed(slot, capacity - floor(capacity / 64), budget) end
  finish(slot, budget)
  return added
end

-- The node in which a slot holds block `block` of a chain.
local function holding(slot, chain, block)
  local at = 0
  for _ = 1, WALKED do
    local node = get(sub(chain, at * 8 + 1, at * 8 + 8), at)
    if not node or not has(node.bits, slot) then return nil end
    local taken = common(node.value, node.head, chain, at)
    if block < at + taken then return node end
    if taken < node.blocks then return nil end
    at = at + taken
  end
end

-- Those of a slot's holds that lie under a node, it among them; parents first. `low` and `high` are the slot's scores.
local function among(low, high, top)
  local entries = redis.call('ZRANGEBYSCORE', lru, low, high)
  table.sort(entries, function(one, other) return sub(one, 3, 6) > sub(other, 3, 6) end)
  local found, ends = { top }, { [last(top)] = true }
  for _, entry in ipairs(entries) do
    local start = 4294967295 - struct.unpack('>I4', sub(entry, 3, 6))
    if start >= top.start + top.blocks then
      local node = get(sub(entry, 7), start)
      if ends[node.prev] then
        found[#found + 1] = node
        ends[last(node)] = true
      end
    end
  end
  return found
end

-- A node and all that the slot holds under it, parents first; nil where that takes more visits than allowed. Under a
-- prompt that everybody's begin with there are thousands of nodes, of which a slot that was just taken holds a few: then
-- its own holds are looked through.
local function below(slot, top)
  local low, high = whole(slot * SPAN), whole(slot * SPAN + SPAN - 1)
  local holds = redis.call('ZCOUNT', lru, low, high)
  local most, found, visits, at = min(VISITED, holds), { top }, 1, 1
  while found[at] do
    local node = found[at]
    local entries = children(node, most + 1 - visits)
    visits = visits + #entries
    if visits > most then return holds <= VISITED and among(low, high, top) or nil end
    for _, entry in ipairs(entries) do
      local child = get(sub(entry, 9), node.start + node.blocks)
      if has(child.bits, slot) then found[#found + 1] = child end
    end
    at = at + 1
  end
  return found
end

local function lose(holder, claim, slot, chain, block)
  local node = holding(slot, chain, block)
  if not node then return 0 end
  local keep, lost = block - node.start, 0
  if keep > 0 then
    if node.bits == with('', slot) and #children(node, 1) == 0 then
      lost = node.blocks - keep
      trim(node, keep)
      redis.call('HINCRBY', reg, 'n:' .. slot, -lost)
      return lost
    end
    node = split(node, keep)
  end
  local found = below(slot, node)
  if not found then
    lost = held(slot)
    retire(holder, claim)
    return lost
  end
  for at = #found, 1, -1 do
    lost = lost + found[at].blocks
    drop(slot, found[at])
  end
  redis.call('HINCRBY', reg, 'n:' .. slot, -lost)
  return lost
end

-- ARGV LIMITS, holder, claims, chain, first block lost
-- Returns blocks lost, on all branches and of all these claims; one with too much below that block loses everything
local function forget(keys, args)
  begin(keys, args)
  local holder, claims, chain, block = args[4], args[5], args[6], tonumber(args[7])
  local lost = 0
  if block >= 0 and block < #chain / 8 then
    local _, slots = seats(holder)
    for claim in string.gmatch(claims, '%a') do
      if slots[claim] then lost = lost + lose(holder, claim, slots[claim], chain, block) end
    end
  end
  finish()
  return lost
end

-- ARGV LIMITS, holder, claim, blocks to keep
-- Returns blocks held then; more than asked where the bound on nodes was reached: call again
local function evict(keys, args)
  begin(keys, args)
  local _, slots = seats(args[4])
  local slot = slots[args[5]]
  local left = slot and shed(slot, max(0, tonumber(args[6])), EVICTED) or 0
  finish(slot)
  return left
end

-- ARGV LIMITS, holder, claims, generation or '' for any
-- Ends these seats: nothing of them matches any more. A generation that is not the present one has ended already.
local function clear(keys, args)
  begin(keys, args)
  local holder = args[4]
  local generation, slots = seats(holder)
  if args[6] == '' or args[6] == generation then
    for claim in string.gmatch(args[5], '%a') do
      if slots[claim] then retire(holder, claim) end
    end
  end
  finish()
  return 1
end

-- ARGV LIMITS, replica, loads (opaque)
-- Replaces what this replica said before; forgets replicas that have long been silent or spoke in the future, which is a
-- clock that was set back since, and what seats outlived
local function publish(keys, args)
  begin(keys, args)
  local now = now_us()
  local beat = (redis.call('HGET', reg, 'b') or 0) + 1
  if beat < now or beat > now + AHEAD_US then beat = now end
  redis.call('HSET', reg, 'b', whole(beat))
  redis.call('HSET', beats, args[4], whole(beat))
  redis.call('HSET', loads, args[4], args[5])
  local all = redis.call('HGETALL', beats)
  for i = 1, #all, 2 do
    local published = tonumber(all[i + 1]) or 0
    if now - published > SILENT_US or published - now > AHEAD_US then
      redis.call('HDEL', beats, all[i])
      redis.call('HDEL', loads, all[i])
    end
  end
  reclaim(BEAT_NODES)
  sweep(BEAT_SEATS, BEAT_NODES)
  finish()
  for _, key in ipairs({ beats, loads }) do redis.call('PEXPIRE', key, ttl_ms) end
  return 1
end

-- ARGV holder, claim
-- Returns blocks held
local function count(keys, args)
  open(keys)
  local _, slots = seats(args[1])
  local slot = slots[args[2]]
  return slot and held(slot) or 0
end

-- Returns bytes of memory that the pool takes, as estimated from what is stored
local function stored(keys)
  open(keys)
  blocks = tonumber(redis.call('HGET', reg, 'blocks') or 0)
  return stored_bytes()
end

redis.register_function { function_name = LIB .. '_match', callback = match, flags = { 'no-writes' } }
redis.register_function { function_name = LIB .. '_count', callback = count, flags = { 'no-writes' } }
redis.register_function { function_name = LIB .. '_stored', callback = stored, flags = { 'no-writes' } }
redis.register_function { function_name = LIB .. '_observe', callback = observe }
redis.register_function { function_name = LIB .. '_forget', callback = forget, flags = { 'allow-oom' } }
redis.register_function { function_name = LIB .. '_evict', callback = evict, flags = { 'allow-oom' } }
redis.register_function { function_name = LIB .. '_clear', callback = clear, flags = { 'allow-oom' } }
redis.register_function { function_name = LIB .. '_publish', callback = publish }
