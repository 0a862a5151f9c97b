// What the server says: JSON by relative addresses, and errors with the server's own words.

/** An answer that is none: `status` 0 where nobody answered. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function asked(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new Refused(0, "the gateway does not answer");
  }
  if (!answer.ok) throw new Refused(answer.status, await reason(answer));
  return answer;
}

async function reason(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `the gateway answers ${answer.status}`;
  }
}

/** The JSON at a path. Raises `Refused`. */
export const get = async (path, signal) => (await asked(path, { signal })).json();

/** Log in. Raises `Refused`. */
export const login = (token) =>
  asked("login", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  });

/** Log out. Raises `Refused`. */
export const logout = () => asked("logout", { method: "POST" });

/** The events of a stream as they come, `{event, data}`; a comment is an event without a name. Raises `Refused`. */
export async function* events(path, signal) {
  const answer = await asked(path, { signal, headers: { accept: "text/event-stream" } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (left + value).split("\n\n");
    left = parts.pop();
    for (const part of parts) yield parsed(part);
  }
}

function parsed(block) {
  const found = { event: "", data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) found.event = line.slice(6).trim();
    else if (line.startsWith("data:")) found.data += line.slice(5);
  }
  return { event: found.event, data: found.data ? JSON.parse(found.data) : null };
}
