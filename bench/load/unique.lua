-- Load for wrk: chat requests that differ in one number alone, each sent once.
--
--     wrk -s unique.lua URL -- HEAD TAIL KEY RUN
--
-- HEAD, TAIL   files: the body before the number and behind it
-- KEY          the key that goes into the field Authorization
-- RUN          0 to 9999: no two runs against one server may have the same
--
-- The number is RUN in 4 digits and a count in 8: all bodies are equally long.
-- The last line of the output is the result as JSON, after the word RESULT; latencies in microseconds.

local DIGITS = "%04d%08d"
local before, behind, run, count

local function content(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

function init(args)
  local head, tail = content(args[1]), content(args[2])
  run, count, behind = tonumber(args[4]), 0, tail
  before = table.concat({
    "POST /v1/chat/completions HTTP/1.1",
    "Host: " .. wrk.host .. ":" .. wrk.port,
    "Authorization: Bearer " .. args[3],
    "Content-Type: application/json",
    "Accept: application/json",
    "User-Agent: wrk",
    "Content-Length: " .. (#head + 12 + #tail),
    "", head,
  }, "\r\n")
end

function request()
  count = count + 1
  return before .. DIGITS:format(run, count) .. behind
end

function done(summary, latency)
  local errors = summary.errors
  io.write(("RESULT {\"requests\":%d,\"duration_us\":%d,\"p50_us\":%d,\"p99_us\":%d,"):format(
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99)))
  io.write(("\"status\":%d,\"connect\":%d,\"read\":%d,\"write\":%d,\"timeout\":%d}\n"):format(
    errors.status, errors.connect, errors.read, errors.write, errors.timeout))
end
