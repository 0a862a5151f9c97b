// The JSON pages of the view that is looked at, asked for again as long as somebody looks.

import { get } from "./api.js";
import { rest } from "./rest.js";
import { state, update } from "./state.js";

const MOST_KEPT = 40;
let running = null;

/** Ask for these pages, `{path: seconds between}`, until the next call. `onLoggedOut` when the session is over. */
export function watch(wanted, onLoggedOut) {
  const signature = JSON.stringify(wanted);
  if (running?.signature === signature) return;
  unwatch();
  const stop = new AbortController();
  running = { signature, stop };
  for (const [path, every_s] of Object.entries(wanted)) void poll(path, every_s, stop.signal, onLoggedOut);
}

/** Ask for nothing any more. */
export function unwatch() {
  running?.stop.abort();
  running = null;
}

/** What a page said last: `{data, failure}`, both null while it was never asked for. */
export const page = (path) => state.pages.get(path) ?? { data: null, failure: null };

/** Ask once, and keep the answer. */
export async function fetchOnce(path, signal, onLoggedOut = () => undefined) {
  try {
    keep(path, { data: await get(path, signal), failure: null });
  } catch (failure) {
    if (failure.name === "AbortError") return;
    if (failure.status === 401) return onLoggedOut();
    keep(path, { data: page(path).data, failure: failure.message });
  }
}

async function poll(path, every_s, signal, onLoggedOut) {
  while (!signal.aborted) {
    if (!document.hidden && !state.paused) await fetchOnce(path, signal, onLoggedOut);
    await rest(every_s * 1000, signal);
  }
}

function keep(path, found) {
  state.pages.delete(path);
  state.pages.set(path, found);
  if (state.pages.size > MOST_KEPT) state.pages.delete(state.pages.keys().next().value);
  if (!state.paused) update();
}
