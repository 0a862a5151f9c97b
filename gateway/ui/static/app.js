// The dashboard: logs in, follows the stream, and draws the view that the address names after `#`.

import * as api from "./api.js";
import { measure } from "./chart.js";
import { render } from "./dom.js";
import { entrance, frame } from "./frame.js";
import { follow, isFollowing, unfollow } from "./live.js";
import { unwatch, watch } from "./polls.js";
import { drawBy, state, update } from "./state.js";
import * as decisions from "./views/decisions.js";
import * as findings from "./views/findings.js";
import * as fleet from "./views/fleet.js";
import * as invoices from "./views/invoices.js";
import * as overview from "./views/overview.js";
import * as prefixes from "./views/prefixes.js";
import * as tenants from "./views/tenants.js";
import { cache, latency } from "./views/traffic.js";

const LEAVES_AFTER_MS = 60_000;
const VIEWS = { overview, fleet, cache, latency, prefixes, decisions, tenants, invoices, findings };

function draw() {
  const page = document.getElementById("page");
  if (state.session === null) {
    render(page, entrance(login));
    return;
  }
  render(page, frame(VIEWS, logout));
  watch(VIEWS[state.view].pages(), loggedOut);
  measure();
}

function enterView() {
  const name = location.hash.slice(1);
  state.view = Object.hasOwn(VIEWS, name) ? name : "overview";
  document.title = state.session ? `${VIEWS[state.view].title}: prefixgate` : "prefixgate";
}

async function begin() {
  try {
    state.session = await api.get("api/session");
    state.refusal = null;
  } catch (failure) {
    state.session = null;
    if (failure.status === 0) state.refusal = failure.message;
  }
  enterView();
  if (state.session) void follow(loggedOut);
  update(() => document.getElementById(state.session ? "title" : "token")?.focus());
}

async function login(token) {
  try {
    await api.login(token);
  } catch (failure) {
    state.refusal = failure.message;
    update(() => document.getElementById("token")?.select());
    return;
  }
  await begin();
}

async function logout() {
  try {
    await api.logout();
  } finally {
    loggedOut();
  }
}

function loggedOut() {
  unfollow();
  unwatch();
  Object.assign(state, { session: null, now: null, paused: null, link: "connecting", refusal: null });
  state.pages.clear();
  state.choices.clear();
  enterView();
  update(() => document.getElementById("token")?.focus());
}

drawBy(draw);
addEventListener("hashchange", () => {
  enterView();
  update(() => {
    scrollTo(0, 0);
    document.getElementById("title")?.focus();
  });
});
addEventListener("resize", measure);

let leaving = null;
document.addEventListener("visibilitychange", () => {
  // who does not look is no viewer
  clearTimeout(leaving);
  if (document.hidden) leaving = setTimeout(unfollow, LEAVES_AFTER_MS);
  else if (state.session && !isFollowing()) void follow(loggedOut);
});
void begin();
