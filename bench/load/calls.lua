-- Load for wrk: calls with a number each, every other one streamed, each sent once.
--
--     wrk -t1 -s calls.lua URL
--
-- What the engine of bench/crash_engine.py answers follows from the number. One thread: numbers are counted in each.
-- The last line of the output is the result as JSON, after the word RESULT; latencies in microseconds.

local BODY = '{"model":"known","messages":[{"role":"user","content":"call %d"}],"stream":%s}'
local count = 0

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

function request()
  count = count + 1
  return wrk.format(nil, "/v1/chat/completions", nil, BODY:format(count, count % 2 == 0 and "true" or "false"))
end

function done(summary, latency)
  local errors = summary.errors
  io.write(("RESULT {\"requests\":%d,\"duration_us\":%d,\"p50_us\":%d,\"p99_us\":%d,"):format(
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99)))
  io.write(("\"status\":%d,\"connect\":%d,\"read\":%d,\"write\":%d,\"timeout\":%d}\n"):format(
    errors.status, errors.connect, errors.read, errors.write, errors.timeout))
end
