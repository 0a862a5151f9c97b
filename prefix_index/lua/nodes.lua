--[[
The radix index as a function library: the same contract as radix.py, shared by all replicas of the gateway.
The loader puts `#!lua name=LIB` and `local LIB = '...'` in front of this file and radix.lua, with a digest of both in
the name: two versions of the gateway can share a server, each with the functions it was tested with. This file is the
structure, radix.lua is what can be called.

Picture. A holds a b c d e, B holds a b x y; slots: A = 0, B = 1; hash names its block and all before it.

    nodes  a -> prev -, bits 11, rest b       kids  b|c   lru  A: [c d e], then [a b]      (oldest first)
           c -> prev b, bits 01, rest d e           b|x        B: [x y],   then [a b]
           x -> prev b, bits 10, rest y

KEYS, always all seven, always in this order, all with one hash tag (one slot of a cluster):
  1 nodes  hash  name (hash of the edge's first block) -> prev(8) | length of bits(2, big-endian) | bits | rest of the edge
  2 lru    zset  slot(2) | 2^32-1-start(4) | name(8)  scored  slot * 2^43 + tick
  3 kids   zset  prev | name, all scored 0: the nodes that start right after block `prev`; roots are not listed
  4 reg    hash  v version, born, t last tick, b last beat, next, free, dead, cursor;
                 h:<holder> slot, g:<holder> generation, c:<holder> capacity in blocks, n:<slot> blocks held
  5 who    hash  slot -> generation:holder, living holders only
  6 beats  hash  replica -> time of its last loads, in microseconds
  7 loads  hash  replica -> its loads, opaque here
Every write renews the time to live of the keys it needs, all of them at once, so they never expire apart.

Why these encodings. A bitmap and one edge per node make a match one read a node, however many holders there are; 500 of
them are 63 bytes. (One field per holder with its coverage would save splits where holders differ only in depth, but then
every match reads every holder of every node.) The bitmap has variable length: one byte for the usual leaf. Nodes are
fields of one hash, not keys: 20 to 30 bytes less each, and they cannot expire or be evicted one by one, which would leave
orphans. One zset for the order of all holders expires with the rest, and needs no key per holder.

Numbers here are doubles, 53 bits: slot(10) and tick(43) share a score exactly. A tick is 0.1 ms since 2026, which lasts
until 2053; ticks never repeat or go back, so that two calls in one tick keep their order and a clock that jumps cannot
put a parent before its child. Depth is in the member, not in the score: of equal scores the deeper sorts first.

Invariants: who holds a node holds its parent; in a holder's order a child comes before its parent; a node without
holders is deleted at once. A leaf of one holder grows and shrinks in place.

A holder's slot is one generation of it. Retired slots keep their bits, which nobody looks up any more, until later
writes have cleared them; then the slot is free again.

Bounded: 512 nodes walked, 512 visited by forget, 128 taken by evict, 64 + 2 per node of the path by observe, 32
reclaimed per write; about 1 microsecond each to read, 10 to take away. A split costs O(holders of the node).
]]

local WALKED, VISITED, SHED, EVICTED, RECLAIMED, EXPIRED, AGED = 512, 512, 64, 128, 32, 8, 8
local SLOTS = 1024
local EPOCH_US = 1767225600000000
local SILENT_US = 60 * 1000000
local NO_PREV = '\0\0\0\0\0\0\0\0'
local LAST_NAME = '\255\255\255\255\255\255\255\255'
local SPAN = 8796093022208 -- 2^43

local byte, char, sub, floor, min, max
local nodes, lru, kids, reg, who, beats, loads

-- Also finds the library functions, which Valkey does not show while it loads a library.
local function open(keys)
  byte, char, sub, floor, min, max = string.byte, string.char, string.sub, math.floor, math.min, math.max
  nodes, lru, kids, reg, who, beats, loads = unpack(keys)
end

local function whole(number)
  return string.format('%.0f', number)
end

local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Bitmaps: slot s is bit s % 8 of byte s / 8; no trailing zero bytes.

local function has(bits, slot)
  local b = byte(bits, floor(slot / 8) + 1)
  return b ~= nil and floor(b / 2 ^ (slot % 8)) % 2 == 1
end

local function with(bits, slot)
  local at = floor(slot / 8) + 1
  if #bits < at then bits = bits .. string.rep('\0', at - #bits) end
  return sub(bits, 1, at - 1) .. char(byte(bits, at) + 2 ^ (slot % 8)) .. sub(bits, at + 1)
end

local function without(bits, slot)
  local at = floor(slot / 8) + 1
  local last = #bits
  bits = sub(bits, 1, at - 1) .. char(byte(bits, at) - 2 ^ (slot % 8)) .. sub(bits, at + 1)
  while last > 0 and byte(bits, last) == 0 do last = last - 1 end
  return sub(bits, 1, last)
end

-- Nodes: {name, start, prev, bits, rest}; the edge is name .. rest.

local function get(name, start)
  local value = redis.call('HGET', nodes, name)
  if not value then return nil end
  local high, low = byte(value, 9, 10)
  local head = 10 + high * 256 + low
  return { name = name, start = start, prev = sub(value, 1, 8), bits = sub(value, 11, head), rest = sub(value, head + 1) }
end

local function put(node)
  local size = #node.bits
  redis.call('HSET', nodes, node.name, node.prev .. char(floor(size / 256), size % 256) .. node.bits .. node.rest)
end

local function length(node)
  return 1 + #node.rest / 8
end

local function last(node)
  return node.rest == '' and node.name or sub(node.rest, -8)
end

local function member(slot, start, name)
  return struct.pack('>I2I4', slot, 4294967295 - start) .. name
end

local function children(node, limit)
  local prev = last(node)
  return redis.call('ZRANGEBYLEX', kids, '[' .. prev, '[' .. prev .. LAST_NAME, 'LIMIT', 0, limit)
end

-- Blocks that an edge shares with the chain at its place. `rest` starts after byte `head` of `value`. One hash equal
-- means all before it equal: try the last, then search binary. The name brought us here, so the answer is at least 1.
local function common(value, head, chain, start)
  local high = min(1 + (#value - head) / 8, #chain / 8 - start)
  local low, probe = 1, high
  while low < high do
    local here = head + (probe - 2) * 8
    local there = (start + probe - 1) * 8
    if sub(value, here + 1, here + 8) == sub(chain, there + 1, there + 8) then low = probe else high = probe - 1 end
    probe = floor((low + high + 1) / 2)
  end
  return low
end

-- Part an edge after `keep` blocks: `node` becomes the head, the tail is returned. Nothing is lost or gained.
local function split(node, keep)
  local cut = (keep - 1) * 8
  local tail = { name = sub(node.rest, cut + 1, cut + 8), start = node.start + keep, bits = node.bits }
  tail.rest = sub(node.rest, cut + 9)
  node.rest = sub(node.rest, 1, cut)
  tail.prev = last(node)
  put(node)
  put(tail)
  redis.call('ZADD', kids, 0, tail.prev .. tail.name)
  local order = {}
  for at = 1, #node.bits do
    for slot = at * 8 - 8, at * 8 - 1 do
      if has(node.bits, slot) then
        order[#order + 1] = redis.call('ZSCORE', lru, member(slot, node.start, node.name))
        order[#order + 1] = member(slot, tail.start, tail.name)
      end
    end
  end
  redis.call('ZADD', lru, unpack(order))
  return tail
end

-- End one slot's hold of a node under which it holds nothing.
local function drop(slot, node)
  redis.call('ZREM', lru, member(slot, node.start, node.name))
  node.bits = without(node.bits, slot)
  if node.bits ~= '' then
    put(node)
  else
    redis.call('HDEL', nodes, node.name)
    if node.start > 0 then redis.call('ZREM', kids, node.prev .. node.name) end
  end
end

-- Slots and holders.

local function bump()
  local now = now_us()
  redis.call('HSETNX', reg, 'born', whole(now))
  redis.call('HSET', reg, 'v', whole(max(now, (redis.call('HGET', reg, 'v') or 0) + 1)))
end

local function slot_of(holder)
  return tonumber(redis.call('HGET', reg, 'h:' .. holder) or nil)
end

local function held(slot)
  return tonumber(redis.call('HGET', reg, 'n:' .. slot) or 0)
end

local function generation(holder)
  return redis.call('HGET', reg, 'g:' .. holder) or '0'
end

-- Lists of slots are strings of two bytes each.
local function list(field)
  return redis.call('HGET', reg, field) or ''
end

local function append(field, slot)
  redis.call('HSET', reg, field, list(field) .. struct.pack('>I2', slot))
end

local function seat(holder)
  local slot = slot_of(holder)
  if slot then return slot end
  local free = list('free')
  if free ~= '' then
    slot = struct.unpack('>I2', sub(free, -2))
    redis.call('HSET', reg, 'free', sub(free, 1, -3))
  else
    slot = tonumber(redis.call('HGET', reg, 'next') or 0)
    if slot == SLOTS then return nil end
    redis.call('HSET', reg, 'next', slot + 1)
  end
  redis.call('HSET', reg, 'h:' .. holder, slot)
  redis.call('HSET', who, slot, generation(holder) .. ':' .. holder)
  bump()
  return slot
end

local function retire(holder, slot)
  redis.call('HDEL', reg, 'h:' .. holder)
  redis.call('HDEL', who, slot)
  append(held(slot) > 0 and 'dead' or 'free', slot)
  bump()
end

-- Take tails from a slot, least recently used first, down to `to` blocks; returns what it has then. `keep_tick` spares
-- what was used at or after that tick.
local function shed(slot, to, budget, keep_tick)
  local count = held(slot)
  if count <= to then return count end
  local before = count
  local low, high = whole(slot * SPAN), whole(slot * SPAN + (keep_tick or SPAN) - 1)
  local oldest = redis.call('ZRANGEBYSCORE', lru, low, high, 'LIMIT', 0, budget)
  -- Keys that a server short of memory evicted took their nodes along, but not the count.
  if #oldest == 0 and not keep_tick then count = to end
  for _, entry in ipairs(oldest) do
    if count <= to then break end
    local node = get(sub(entry, 7), 4294967295 - struct.unpack('>I4', sub(entry, 3, 6)))
    local excess = min(count - to, length(node))
    local keep = length(node) - excess
    if keep > 0 and node.bits == with('', slot) then
      node.rest = sub(node.rest, 1, (keep - 1) * 8)
      put(node)
    else
      if keep > 0 then node = split(node, keep) end
      drop(slot, node)
    end
    count = count - excess
  end
  redis.call('HINCRBY', reg, 'n:' .. slot, count - before)
  return count
end

-- Give back a little of a generation that ended; else, now and then, let the next slot lose what is older than the time
-- to live.
local function reclaim(tick, dead, slots, ttl_ms)
  if dead ~= '' then
    local slot = struct.unpack('>I2', dead)
    if shed(slot, 0, RECLAIMED) == 0 then
      redis.call('HSET', reg, 'dead', sub(dead, 3))
      append('free', slot)
    end
  elseif tick % AGED == 0 and slots > 0 then
    local slot = redis.call('HINCRBY', reg, 'cursor', 1) % slots
    if held(slot) > 0 and shed(slot, 0, EXPIRED, max(0, tick - ttl_ms * 10)) == 0 then
      local name = redis.call('HGET', who, slot)
      retire(sub(name, string.find(name, ':', 1, true) + 1), slot)
    end
  end
end

-- Every write starts here: whole keys, a new tick, old things reclaimed. Returns the tick.
local function begin(keys, ttl_ms)
  open(keys)
  local there = redis.call('EXISTS', nodes, lru)
  local state = redis.call('HMGET', reg, 'born', 't', 'dead', 'next')
  -- A server short of memory may evict single keys; what is left of the index then is not an index.
  if there == 1 or (there == 2 and not state[1]) then
    redis.call('UNLINK', nodes, lru, kids, reg, who)
    state = {}
  elseif there == 0 then
    redis.call('UNLINK', kids)
  end
  local tick = max(floor((now_us() - EPOCH_US) / 100), (state[2] or 0) + 1)
  redis.call('HSET', reg, 't', whole(tick))
  reclaim(tick, state[3] or '', tonumber(state[4] or 0), ttl_ms)
  return tick
end

local function finish(ttl_ms)
  for _, key in ipairs({ nodes, lru, kids, reg, who }) do redis.call('PEXPIRE', key, ttl_ms) end
end
