// The stream of what happens, kept up: connected again when it breaks, and honest about how old the page is.
//
//     connecting -> live -> reconnecting -> stale (since when) -> live
//                      \-> full: the server has as many viewers as it takes; asked again, less often

import { Refused, events, get } from "./api.js";
import { rest } from "./rest.js";
import { MOST_DECISIONS, say, state, update } from "./state.js";

const SILENT_MS = 40_000; // the server says something each 15 s
const STALE_MS = 5_000;
const WAITS_MS = [500, 1_000, 2_000, 4_000, 8_000];
const FULL_WAIT_MS = 20_000;

let stop = null;
let held = null; // the state as of a pause, while the stream goes on

/** Follow the stream until `unfollow`. `onLoggedOut` is called when the session is over. */
export async function follow(onLoggedOut) {
  unfollow();
  const mine = (stop = new AbortController());
  for (let failures = 0; !mine.signal.aborted; failures += 1) {
    const began = Date.now();
    const why = await listenOnce(mine.signal);
    if (mine.signal.aborted) return;
    if (why?.status === 401) return onLoggedOut();
    if (Date.now() - began > 10_000) failures = 0;
    lost(why);
    await rest(why?.status === 429 ? FULL_WAIT_MS : WAITS_MS[Math.min(failures, WAITS_MS.length - 1)], mine.signal);
  }
}

/** End it. */
export function unfollow() {
  stop?.abort();
  stop = null;
  state.link = "connecting";
}

/** Whether the stream is followed, or will be as soon as it can be. */
export const isFollowing = () => stop !== null;

/** Stop drawing what comes, or go on with what has come meanwhile. */
export function pause(paused) {
  state.paused = paused ? new Date() : null;
  if (paused) held = state.now && { ...state.now, endpoints: new Map(state.now.endpoints) };
  else if (held) [state.now, held] = [held, null];
  say(paused ? "Paused" : "Going on");
  update();
}

async function listenOnce(signal) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENT_MS);
  try {
    for await (const { event, data } of events("events", AbortSignal.any([signal, silence.signal]))) {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENT_MS);
      heard();
      if (event === "end") return new Refused(0, `the gateway ended the stream: ${data.reason.replaceAll("_", " ")}`);
      if (event === "snapshot") {
        began(data);
        void older(signal);
      }
      if (event === "delta") changed(data);
    }
    return new Refused(0, "the connection ended");
  } catch (failure) {
    return failure instanceof Refused ? failure : new Refused(0, "the connection broke");
  } finally {
    clearTimeout(timer);
  }
}

function heard() {
  state.lastHeard = new Date();
  if (state.link !== "live") {
    state.link = "live";
    state.linkWhy = null;
    say("Live");
    update();
  }
}

function lost(why) {
  state.linkWhy = why?.message ?? null;
  if (why?.status === 429) state.link = "full";
  else if (state.link === "live") {
    state.link = "reconnecting";
    say("Reconnecting");
    setTimeout(() => {
      if (state.link !== "reconnecting") return;
      state.link = "stale";
      say("The figures are stale: the gateway does not answer");
      update();
    }, STALE_MS);
  } else if (state.link === "connecting") state.link = "stale";
  update();
}

const current = () => (state.paused ? held : state.now);

function keep(now) {
  if (state.paused) held = now;
  else {
    const troubles = now.health?.degraded ?? [];
    if (state.now && troubles.length !== (state.now.health?.degraded ?? []).length) {
      say(troubles.length ? `Degraded: ${troubles.map((one) => one.part).join(", ")}` : "Nothing is degraded any more");
    }
    state.now = now;
    update();
  }
}

function began(data) {
  keep({ ...data, endpoints: new Map(Object.entries(data.endpoints)), decisions: newest(data.decisions ?? [], []) });
}

async function older(signal) {
  // a snapshot has the newest decisions alone
  try {
    const { decisions } = await get(`api/decisions?limit=${MOST_DECISIONS}`, signal);
    const now = current();
    if (now) keep({ ...now, decisions: newest(now.decisions, decisions) });
  } catch (failure) {
    if (!(failure instanceof Refused) && failure.name !== "AbortError") throw failure; // the newest are there anyhow
  }
}

function changed(data) {
  const now = current();
  if (!now) return;
  const endpoints = new Map(now.endpoints);
  for (const [id, fields] of Object.entries(data.endpoints ?? {})) {
    if (fields === null) endpoints.delete(id);
    else endpoints.set(id, { ...endpoints.get(id), ...fields });
  }
  keep({
    as_of: data.as_of ?? now.as_of,
    live: { ...now.live, ...data.live },
    endpoints,
    decisions: newest(data.decisions ?? [], now.decisions),
    health: data.health ?? now.health,
  });
}

/** Those of before, with the newer ones in front and what has been settled in its place; bounded. */
export function newest(fresh, before) {
  if (!fresh.length) return before;
  const by = new Map(fresh.map((one) => [one.request_id, one]));
  const stay = before.map((one) => {
    const other = by.get(one.request_id);
    by.delete(one.request_id);
    return other ?? one;
  });
  return [...by.values(), ...stay].slice(0, MOST_DECISIONS);
}
