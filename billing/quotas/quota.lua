-- Limits and budgets, shared by all replicas: reserve, then settle, each in one call.
--
-- Keys, all with the tenant's hash tag {pgq:1:<pool>:<tenant>}, so in one slot:
--   :due           zset   request id -> ms at which its hold, or what is remembered of it, ends
--   :holds         hash   request id -> cmsgpack of what is held, or 'x' once it is settled (so that it settles once);
--                         '@' -> the name of this list, new whenever it had to be begun anew
--   :w:<owner>     string cmsgpack {second, requests, tokens, ...} of the last minute, a group of three a second
--   :l:<owner>     zset   request id -> ms at which it stops counting as in flight
--   :b:<purse>     hash   born (ms of the ledger's reading it was begun from), s (micro-units spent), h (held, and by
--                         holds of which list: g)
-- What was settled is remembered for two minutes, so that a settlement that is sent again counts once. Every key has a
-- time to live: twice the life of what it holds, a purse until two days after its period.
--
-- Money arrives as text and is added by HINCRBY, which is exact; Lua only compares, below 2^53.
-- A hold names its keys, and a sweep frees those of other requests, so keys of the same slot are touched that are not
-- in KEYS. Times are the server's; a caller's `now` above 0 stands in for them in tests.

local WINDOW_S, SWEPT, SETTLED_MS = 60, 32, 120000

local function clock(now)
  if now > 0 then return now end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function whole(number)
  return string.format('%.0f', number)
end

local function window(key, second)
  local packed = redis.call('GET', key)
  local kept, requests, tokens = {}, 0, 0
  if packed then
    local all = cmsgpack.unpack(packed)
    for at = 1, #all, 3 do
      if all[at] > second - WINDOW_S then
        kept[#kept + 1], kept[#kept + 2], kept[#kept + 3] = all[at], all[at + 1], all[at + 2]
        requests, tokens = requests + all[at + 1], tokens + all[at + 2]
      end
    end
  end
  return kept, requests, tokens
end

-- Ms until so much of the window has passed that `excess` is gone; `place` 1: requests, 2: tokens.
local function until_gone(kept, place, excess, now)
  for at = 1, #kept, 3 do
    excess = excess - kept[at + place]
    if excess <= 0 then return (kept[at] + WINDOW_S) * 1000 - now end
  end
  return WINDOW_S * 1000
end

local function put_window(key, kept)
  redis.call('SET', key, cmsgpack.pack(kept), 'PX', (WINDOW_S + 1) * 2000)
end

local function give_back(list, record, id)
  for _, live in ipairs(record[1]) do redis.call('ZREM', live, id) end
  for _, held in ipairs(record[2]) do
    if held[2] > 0 and redis.call('HGET', held[1], 'g') == list then
      redis.call('HINCRBY', held[1], 'h', '-' .. whole(held[2]))
    end
  end
end

-- Free what was held for requests that nobody renewed, and forget what was settled long ago.
local function sweep(list, due, holds, now)
  local ids = redis.call('ZRANGEBYSCORE', due, '-inf', whole(now), 'LIMIT', 0, SWEPT)
  for _, id in ipairs(ids) do
    local packed = redis.call('HGET', holds, id)
    if packed and packed ~= 'x' then give_back(list, cmsgpack.unpack(packed), id) end
    redis.call('HDEL', holds, id)
    redis.call('ZREM', due, id)
  end
end

local function keep(due, holds, id, packed, now, for_ms)
  redis.call('HSET', holds, id, packed)
  redis.call('ZADD', due, whole(now + for_ms), id)
  local life = 2 * math.max(for_ms, SETTLED_MS)
  redis.call('PEXPIRE', due, life)
  redis.call('PEXPIRE', holds, life)
end

local function left(limit, used)
  if limit < 0 then return -1 end
  return math.max(0, limit - used)
end

-- What an owner has left: requests, ms until all are back, tokens, ms until all are back.
local function room(owner, used, now)
  local newest = used.kept[#used.kept - 2]
  local reset = newest and math.max(0, (newest + WINDOW_S) * 1000 - now) or 0
  return { left(owner[3], used.requests), reset, left(owner[4], used.tokens), reset }
end

-- Whether an owner lets the request in: nil, or the kind of limit and the ms after which it may.
local function refusal(owner, used, tokens, now)
  if owner[5] >= 0 and used.live >= owner[5] then return 3, 1000 end
  if owner[3] >= 0 and used.requests + 1 > owner[3] then
    return 1, until_gone(used.kept, 1, used.requests + 1 - owner[3], now)
  end
  if owner[4] >= 0 then
    local wanted = math.min(tokens, owner[4])
    if used.tokens + wanted > owner[4] then
      return 2, until_gone(used.kept, 2, used.tokens + wanted - owner[4], now)
    end
  end
end

local function used_by(keys, owner, now)
  local used = { kept = {}, requests = 0, tokens = 0, live = 0 }
  if owner[1] > 0 then used.kept, used.requests, used.tokens = window(keys[owner[1]], math.floor(now / 1000)) end
  if owner[2] > 0 then
    redis.call('ZREMRANGEBYSCORE', keys[owner[2]], '-inf', whole(now))
    used.live = redis.call('ZCARD', keys[owner[2]])
  end
  return used
end

-- The name of the list of holds. Where a part of it was evicted, nobody could give back what the rest names: it is begun
-- anew, and what purses held for it counts no more.
local function whole_list(due, holds, now, id)
  local list = redis.call('HGET', holds, '@')
  if list and redis.call('ZCARD', due) + 1 == redis.call('HLEN', holds) then return list end
  redis.call('DEL', due, holds)
  list = whole(now) .. id
  redis.call('HSET', holds, '@', list)
  redis.call('PEXPIRE', holds, 2 * SETTLED_MS)
  return list
end

-- Amount to hold of a purse, or nil and the kind of refusal. A call that is alone may have what is left, however much
-- it might cost: a hold larger than a budget would keep everyone out at nothing spent.
local function amount_of(state, limit, micro)
  local spent, held = state.spent, state.held
  if spent >= limit then return nil, 4 end
  if spent + held + micro <= limit then return micro end
  if held == 0 then return limit - spent end
  return nil, 5
end

local function take(list, keys, plan, used, states, amounts, now)
  local id, ttl, tokens = plan[1], plan[3], plan[4]
  local lives, helds, wins = {}, {}, {}
  for at, owner in ipairs(plan[6]) do
    local second, kept = math.floor(now / 1000), used[at].kept
    if owner[1] > 0 then
      local wanted = owner[4] >= 0 and math.min(tokens, owner[4]) or tokens
      if kept[#kept - 2] == second then
        kept[#kept - 1], kept[#kept] = kept[#kept - 1] + 1, kept[#kept] + wanted
      else
        kept[#kept + 1], kept[#kept + 2], kept[#kept + 3] = second, 1, wanted
      end
      used[at].requests, used[at].tokens = used[at].requests + 1, used[at].tokens + wanted
      put_window(keys[owner[1]], kept)
      wins[#wins + 1] = { keys[owner[1]], second, wanted }
    end
    if owner[2] > 0 then
      redis.call('ZADD', keys[owner[2]], whole(now + ttl), id)
      redis.call('PEXPIRE', keys[owner[2]], 2 * ttl)
      lives[#lives + 1] = keys[owner[2]]
    end
  end
  for at, purse in ipairs(plan[7]) do
    redis.call('HSET', keys[purse[1]], 'g', list, 'h', whole(states[at].held + amounts[at]))
    helds[#helds + 1] = { keys[purse[1]], amounts[at] }
  end
  keep(keys[1], keys[2], id, cmsgpack.pack({ lives, helds, wins }), now, ttl)
end

local function reply(head, plan, used, now)
  for at, owner in ipairs(plan[6]) do
    for _, number in ipairs(room(owner, used[at], now)) do head[#head + 1] = math.floor(number) end
  end
  return head
end

-- ask. KEYS: due, holds, then those that the plan names by place.
-- ARGV: cmsgpack {id, now, ttl_ms, tokens, micro, owners {window, live, rpm, tpm, concurrent}, purses {key, limit}};
-- -1 is no limit, place 0 no key.
-- Returns {0, rooms.., spent, held..} where granted, {kind, place, wait_ms, rooms..} where refused, {-1, places..} where
-- purses were not begun, {-2} where the request is over already.
local function ask(keys, args)
  local plan = cmsgpack.unpack(args[1])
  local now = clock(plan[2])
  local list = whole_list(keys[1], keys[2], now, plan[1])
  sweep(list, keys[1], keys[2], now)
  if redis.call('HEXISTS', keys[2], plan[1]) == 1 then return { -2 } end
  local states, unstarted = {}, { -1 }
  for at, purse in ipairs(plan[7]) do
    local found = redis.call('HMGET', keys[purse[1]], 'born', 's', 'h', 'g')
    states[at] = { spent = tonumber(found[2] or 0), held = found[4] == list and tonumber(found[3]) or 0 }
    if not found[1] then unstarted[#unstarted + 1] = at - 1 end
  end
  if #unstarted > 1 then return unstarted end
  local used, amounts = {}, {}
  for at, owner in ipairs(plan[6]) do used[at] = used_by(keys, owner, now) end
  for at, owner in ipairs(plan[6]) do
    local kind, wait = refusal(owner, used[at], plan[4], now)
    if kind then return reply({ kind, at - 1, math.floor(wait) }, plan, used, now) end
  end
  for at, purse in ipairs(plan[7]) do
    local amount, kind = amount_of(states[at], purse[2], plan[5])
    if not amount then return reply({ kind, at - 1, 1000 }, plan, used, now) end
    amounts[at] = amount
  end
  take(list, keys, plan, used, states, amounts, now)
  local head = reply({ 0 }, plan, used, now)
  for at in ipairs(plan[7]) do
    head[#head + 1] = states[at].spent
    head[#head + 1] = states[at].held + amounts[at]
  end
  return head
end

-- settle. KEYS: due, holds, the purses to charge.
-- ARGV: id, now, tokens ('' unknown), micro ('' unknown), committed_ms. Returns 1, or 0 where it was settled before.
local function settle(keys, args)
  local id, now, committed = args[1], clock(tonumber(args[2])), tonumber(args[5])
  local list = whole_list(keys[1], keys[2], now, id)
  local packed = redis.call('HGET', keys[2], id)
  if packed == 'x' then
    if tonumber(redis.call('ZSCORE', keys[1], id) or 0) > now then return 0 end
    packed = nil -- long ago, and not swept yet
  end
  local held = {}
  if packed then
    local record = cmsgpack.unpack(packed)
    give_back(list, record, id)
    for _, one in ipairs(record[2]) do held[one[1]] = whole(one[2]) end
    for _, win in ipairs(args[3] ~= '' and record[3] or {}) do
      local kept = window(win[1], math.floor(now / 1000))
      for at = 1, #kept, 3 do
        if kept[at] == win[2] then
          kept[at + 2] = math.max(0, kept[at + 2] - win[3] + tonumber(args[3]))
          put_window(win[1], kept)
        end
      end
    end
  end
  for at = 3, #keys do
    local born = redis.call('HGET', keys[at], 'born')
    local micro = args[4] ~= '' and args[4] or held[keys[at]] or '0'
    if born and tonumber(born) < committed then redis.call('HINCRBY', keys[at], 's', micro) end
  end
  keep(keys[1], keys[2], id, 'x', now, SETTLED_MS)
  return 1
end

-- renew. KEYS: due, holds. ARGV: now, ttl_ms, ids.. Returns how many are still held.
local function renew(keys, args)
  local now, ttl, count = clock(tonumber(args[1])), tonumber(args[2]), 0
  for at = 3, #args do
    local id = args[at]
    local packed = redis.call('HGET', keys[2], id)
    if packed and packed ~= 'x' then
      keep(keys[1], keys[2], id, packed, now, ttl)
      for _, live in ipairs(cmsgpack.unpack(packed)[1]) do
        redis.call('ZADD', live, whole(now + ttl), id)
        redis.call('PEXPIRE', live, 2 * ttl)
      end
      count = count + 1
    end
  end
  return count
end

-- start. KEYS: a purse. ARGV: micro-units spent so far, ms of the reading, time to live in ms. The first one counts.
local function start(keys, args)
  if redis.call('HSETNX', keys[1], 'born', args[2]) == 0 then return 0 end
  redis.call('HINCRBY', keys[1], 's', args[1])
  redis.call('PEXPIRE', keys[1], args[3])
  return 1
end

-- beat. KEYS: the zset of replicas. ARGV: replica, ms after which one is gone. Returns how many there are.
local function beat(keys, args)
  local now = clock(0)
  redis.call('ZADD', keys[1], whole(now), args[1])
  redis.call('ZREMRANGEBYSCORE', keys[1], '-inf', whole(now - tonumber(args[2])))
  redis.call('PEXPIRE', keys[1], 2 * tonumber(args[2]))
  return redis.call('ZCARD', keys[1])
end

redis.register_function(LIB .. '_ask', ask)
redis.register_function(LIB .. '_settle', settle)
redis.register_function(LIB .. '_renew', renew)
redis.register_function(LIB .. '_start', start)
redis.register_function(LIB .. '_beat', beat)
