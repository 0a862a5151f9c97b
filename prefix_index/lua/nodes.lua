--[[
The radix index as a function library: the same contract as radix.py, shared by all replicas of the gateway.
The loader puts `#!lua name=LIB` and `local LIB = '...'` in front of this file, seats.lua and radix.lua, with a digest of
all in the name: two versions of the gateway can share a server, each with the functions it was tested with. This file is
the tree, seats.lua is who may hold what and for how long, radix.lua is what can be called.

Picture. A holds a b c d e, B holds a b x y; slots: A = 0, B = 1; a hash names its block and all before it.

    nodes  a -> prev -, bits 11, rest b       kids  b|c   lru  A: [c d e], then [a b]      (oldest first)
           c -> prev b, bits 01, rest d e           b|x        B: [x y],   then [a b]
           x -> prev b, bits 10, rest y

KEYS, always all seven, always in this order, all with one hash tag (one slot of a cluster):
  1 nodes  hash  name (hash of the edge's first block) ->
                 prev(8) | second of last use(4, big-endian) | zero bytes skipped(1) | length of bits - 1 (1) | bits | rest of the edge
  2 lru    zset  slot(2) | 2^32-1-start(4) | name(8)  scored  slot * 2^42 + tick
  3 kids   zset  prev | name, all scored 0: the nodes that start right after block `prev`; roots are not listed
  4 reg    hash  v version, born, t last tick, b last beat, blocks and roots stored, seats taken, next, free, dead, cursor;
                 h:<holder> its generation and seats, as in 81234:c3s7; n:<slot> blocks held
  5 who    hash  slot -> generation:claim holder, living seats only
  6 beats  hash  replica -> time of its last loads, in microseconds
  7 loads  hash  replica -> its loads, opaque here
Every write renews the time to live of the keys it needs, all of them at once, so they never expire apart.

Why these encodings. A bitmap and one edge per node make a match one read a node, however many holders there are; 500 of
them are 63 bytes. (One field per holder with its coverage would save splits where holders differ only in depth, but then
every match reads every holder of every node.) The bitmap leaves out zero bytes on both sides: one byte for the usual
leaf, whatever its slot. Nodes are fields of one hash, not keys: 20 to 30 bytes less each, and they cannot expire or be
evicted one by one, which would leave orphans. One zset for the order of all seats expires with the rest.

Seats. Each claim of a holder (a letter: c confirmed, s speculative, h host, d disk) sits on a slot of its own, so the
structure knows no claims, only slots; but `s` is short-lived. The generation of a holder is the tick at which its first
seat was taken; it ends with the last one, and nothing of a holder outlives its seats. Retired slots keep their bits,
which nobody looks up any more, until later writes have cleared them; then the slot is free again.

Numbers here are doubles, 53 bits: slot(11) and tick(42) share a score exactly. A tick is 0.1 ms since 2026, which lasts
until December 2039; ticks never repeat or go back, so that two calls in one tick keep their order and a clock that
jumps cannot put a parent before its child. Depth is in the member, not in the score: of equal scores the deeper sorts
first. Equal ticks mean the same call.

Invariants: who holds a node holds its parent; in a seat's order a child comes before its parent; a node without holders
is deleted at once. A leaf of one holder grows and shrinks in place; a node and its only child become one again when the
same seats hold both and used both in the same calls, so a chat that grows turn by turn stays one node.

Bounded. Work: 512 nodes walked, 512 visited by forget, 128 taken by evict, 16 + 2 per node of the path by observe, 16
given back by each write, 64 by each beat; about 1 microsecond each to read, 10 to take away (long edges count for more).
A split costs O(holders of the node). Bytes: above the caller's limit each write takes from the largest of a few seats.
]]

local WALKED, VISITED, EVICTED = 512, 512, 128
local SHED, RECLAIMED, EXPIRED = 16, 16, 8 -- nodes taken by a write: beyond a limit, of seats that ended, of the next seat
local BEAT_SEATS, BEAT_NODES = 16, 64 -- seats that a beat looks after, nodes it takes
local EVERY = 8 -- ticks: one write in so many looks after the next seat
local JOINED, JOINED_HOLDERS = 4, 8
local SLOTS = 2048
local EPOCH_US = 1767225600000000
local SILENT_US = 60 * 1000000
local AHEAD_US = 1000000 -- a beat further in the future is of a clock that was set back
local FRESH_S = 8
local SHORT = 's'
local NO_PREV = '\0\0\0\0\0\0\0\0'
local LAST_NAME = '\255\255\255\255\255\255\255\255'
local SPAN = 4398046511104 -- 2^42
-- Bytes of memory, rounded up: a block on an edge (8, and what allocators round up), and what else a field of `nodes`, an
-- entry of `kids` and an entry of `lru` take. Redis 7.0 was seen to take 69 to 117, 129 and 113, Valkey 9.1 39 to 69, 78
-- and 78.
local BLOCK_BYTES, NODE_BYTES, KID_BYTES, HOLD_BYTES = 9, 112, 128, 112

local byte, char, sub, rep, find, floor, min, max
local nodes, lru, kids, reg, who, beats, loads
local ttl_ms, short_ms, max_bytes -- what every write carries first
local tick, second, blocks, roots -- of this write: its tick, its second as stored, the blocks and the roots stored

-- Also finds the library functions, which Valkey does not show while it loads a library.
local function open(keys)
  byte, char, sub, rep, find = string.byte, string.char, string.sub, string.rep, string.find
  floor, min, max = math.floor, math.min, math.max
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
  if #bits < at then bits = bits .. rep('\0', at - #bits) end
  return sub(bits, 1, at - 1) .. char(byte(bits, at) + 2 ^ (slot % 8)) .. sub(bits, at + 1)
end

local function without(bits, slot)
  local at = floor(slot / 8) + 1
  local last = #bits
  bits = sub(bits, 1, at - 1) .. char(byte(bits, at) - 2 ^ (slot % 8)) .. sub(bits, at + 1)
  while last > 0 and byte(bits, last) == 0 do last = last - 1 end
  return sub(bits, 1, last)
end

-- Nodes: {name, start, blocks, prev, used, bits} and the rest of the edge, which is cut out of `value` when asked for.

local function get(name, start)
  local value = redis.call('HGET', nodes, name)
  if not value then return nil end
  local skipped, size = byte(value, 13, 14)
  local head = 15 + size
  return {
    name = name, start = start, blocks = 1 + (#value - head) / 8, prev = sub(value, 1, 8), used = sub(value, 9, 12),
    bits = rep('\0', skipped) .. sub(value, 15, head), value = value, head = head,
  }
end

local function rest(node)
  if not node.rest then node.rest = sub(node.value, node.head + 1) end
  return node.rest
end

local function put(node)
  local first = find(node.bits, '[^%z]')
  local head = node.prev .. node.used .. char(first - 1, #node.bits - first) .. sub(node.bits, first)
  redis.call('HSET', nodes, node.name, head .. rest(node))
end

-- Change how long the edge is: `text` is all of it after its name.
local function set_rest(node, text)
  node.rest, node.blocks = text, 1 + #text / 8
end

local function last(node)
  return node.blocks == 1 and node.name or sub(node.rest or node.value, -8)
end

local function member(slot, node)
  return struct.pack('>I2I4', slot, 4294967295 - node.start) .. node.name
end

-- The members under which all holders of a node stand in the order of use.
local function members(node)
  local found = {}
  for at = 1, #node.bits do
    local b, slot = byte(node.bits, at), at * 8 - 8
    while b > 0 do
      if b % 2 == 1 then found[#found + 1] = member(slot, node) end
      b, slot = floor(b / 2), slot + 1
    end
  end
  return found
end

local function scores(of)
  return redis.call('ZMSCORE', lru, unpack(of))
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
  local text, cut = rest(node), (keep - 1) * 8
  local tail = { name = sub(text, cut + 1, cut + 8), start = node.start + keep, bits = node.bits, used = node.used }
  set_rest(tail, sub(text, cut + 9))
  set_rest(node, sub(text, 1, cut))
  tail.prev = last(node)
  put(node)
  put(tail)
  redis.call('ZADD', kids, 0, tail.prev .. tail.name)
  local order, below = {}, members(tail)
  for at, score in ipairs(scores(members(node))) do
    order[at * 2 - 1], order[at * 2] = score, below[at]
  end
  redis.call('ZADD', lru, unpack(order))
  return tail
end

-- Make a node and its only child one, where that loses nothing: the same seats, of each the same calls. Whether it did.
local function join(node, child)
  if node.bits ~= child.bits then return false end
  local above, below = members(node), members(child)
  if #above > JOINED_HOLDERS or #children(node, 2) ~= 1 then return false end
  local mine = scores(above)
  for at, tail in ipairs(scores(below)) do
    if mine[at] % SPAN ~= tail % SPAN then return false end
  end
  redis.call('ZREM', kids, child.prev .. child.name)
  redis.call('ZREM', lru, unpack(below))
  redis.call('HDEL', nodes, child.name)
  set_rest(node, rest(node) .. child.name .. rest(child))
  node.used = child.used
  put(node)
  return true
end

-- End one slot's hold of a node under which it holds nothing.
local function drop(slot, node)
  redis.call('ZREM', lru, member(slot, node))
  node.bits = without(node.bits, slot)
  if node.bits ~= '' then
    put(node)
  else
    redis.call('HDEL', nodes, node.name)
    blocks = blocks - node.blocks
    if node.start > 0 then redis.call('ZREM', kids, node.prev .. node.name) else roots = roots - 1 end
  end
end

-- Shorten a leaf that one slot alone holds.
local function trim(node, keep)
  blocks = blocks - node.blocks + keep
  set_rest(node, sub(rest(node), 1, (keep - 1) * 8))
  put(node)
end
