-- One string for each block: a bitmap of the holders that have it. Who has a block has all before it, so bitmaps only
-- shrink along a chain, and equal ones at two places are equal everywhere between: a search, not a scan.
--
-- KEYS 1: what the keys begin with; blocks are at KEYS[1] .. hash (one server, no cluster)

local PREFIX, CHAIN, SUB

local function open(keys, chain)
  SUB, PREFIX, CHAIN = string.sub, keys[1], chain
end

local function key(at)
  return PREFIX .. SUB(CHAIN, at * 8 - 7, at * 8)
end

-- The last block, counted from 1, of which `there` is true; 0 if of none. Gallops, then bisects.
local function last(there)
  local total, low, high = #CHAIN / 8, 0, 1
  while high <= total and there(high) do low, high = high, high * 2 end
  high = math.min(high, total + 1)
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if there(middle) then low = middle else high = middle end
  end
  return low
end

-- ARGV chain
-- Returns bits and end pairs: each bitmap met along the chain, and the last block that has it
local function match(keys, args)
  open(keys, args[1])
  local seen, found = {}, {}
  local function bits(at)
    if seen[at] == nil then seen[at] = redis.call('GET', key(at)) end
    return seen[at]
  end
  local deepest = last(bits)
  local function spread(low, high)
    if bits(low) == bits(high) then return end
    if high - low == 1 then
      found[#found + 1] = bits(low)
      found[#found + 1] = low
      return
    end
    local middle = math.floor((low + high) / 2)
    spread(low, middle)
    spread(middle, high)
  end
  if deepest == 0 then return found end
  spread(1, deepest)
  found[#found + 1] = bits(deepest)
  found[#found + 1] = deepest
  return found
end

-- ARGV chain, number of the holder
-- Returns blocks that were new
local function observe(keys, args)
  open(keys, args[1])
  local slot, total = args[2], #CHAIN / 8
  local had = last(function(at) return redis.call('GETBIT', key(at), slot) == 1 end)
  for at = had + 1, total do redis.call('SETBIT', key(at), slot, 1) end
  return total - had
end

redis.register_function { function_name = 'bench_flat_match', callback = match, flags = { 'no-writes' } }
redis.register_function { function_name = 'bench_flat_observe', callback = observe }
