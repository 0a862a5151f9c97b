// Every endpoint: what it is, how it stands, how full and how fast it is, and how far the index can be relied on there.

import { h } from "../dom.js";
import { card, empty, head, late, meter, pill, told } from "../parts.js";
import { page } from "../polls.js";
import { choice, choose, state } from "../state.js";
import { table } from "../table.js";
import { UNKNOWN, ago, count, many, rate, seconds, share, short } from "../units.js";

export const title = "Fleet";
export const pages = () => ({ "api/fleet": 15 });

const KINDS = { up: "good", half_open: "warn", ejected: "warn", stalled: "warn" };

/** The endpoints that are known now, by name; null before the first word of the server. */
export function endpoints() {
  if (!state.now) return null;
  return [...state.now.endpoints.values()].sort((one, other) =>
    one.id.localeCompare(other.id, "en", { numeric: true }),
  );
}

/** How an endpoint stands: a sign, a word, and why. */
export function standing(one) {
  const word = one.draining ? "draining" : one.state.replaceAll("_", " ");
  return h(
    "span",
    {},
    pill(one.draining ? "warn" : (KINDS[one.state] ?? "bad"), word),
    one.why && h("span", { class: "why" }, one.why),
  );
}

export const kvUse = (one) => meter(one.kv_use, share(one.kv_use), one.kv_use > 0.9 ? "s2" : "s1");

const COLUMNS = [
  {
    name: "endpoint",
    by: (one) => one.id,
    cell: (one) => h("span", {}, one.id, h("span", { class: "why" }, (one.models ?? []).join(", ") || UNKNOWN)),
  },
  { name: "state", by: (one) => one.state, cell: standing },
  {
    name: "engine",
    cell: (one) =>
      h(
        "span",
        {},
        told(one.engine ?? UNKNOWN),
        one.version && ` ${one.version}`,
        one.role !== "both" && h("span", { class: "why" }, one.role),
      ),
  },
  { name: "KV cache", unit: "in use", number: true, by: (one) => one.kv_use, cell: kvUse },
  {
    name: "running",
    unit: "requests",
    number: true,
    by: (one) => one.running_requests,
    cell: (one) => count(one.running_requests),
  },
  {
    name: "waiting",
    unit: "requests",
    number: true,
    by: (one) => one.waiting_requests,
    cell: (one) => count(one.waiting_requests),
  },
  {
    name: "sent",
    unit: "in flight",
    number: true,
    by: (one) => one.in_flight_requests,
    cell: (one) => count(one.in_flight_requests),
  },
  {
    name: "prefill",
    unit: "fitted",
    number: true,
    by: (one) => one.speed?.prefill_tokens_per_s,
    cell: (one) =>
      h(
        "span",
        {},
        told(rate(one.speed?.prefill_tokens_per_s)),
        one.speed && h("span", { class: "why" }, fitted(one.speed)),
      ),
  },
  {
    name: "ITL",
    unit: "fitted",
    number: true,
    by: (one) => one.speed?.itl_s,
    cell: (one) => seconds(one.speed?.itl_s),
  },
  {
    name: "index",
    unit: "of capacity",
    number: true,
    by: (one) => one.coverage?.share,
    cell: (one) => meter(one.coverage?.share, share(one.coverage?.share), "s3"),
  },
  {
    name: "hit share",
    unit: "reported",
    number: true,
    by: (one) => one.hit_share,
    cell: (one) => share(one.hit_share),
  },
  {
    name: "expected",
    unit: "error",
    number: true,
    by: (one) => one.error_percent,
    cell: (one) =>
      one.error_percent === null || one.error_percent === undefined ? UNKNOWN : `${one.error_percent.toFixed(1)} %`,
  },
];

const fitted = ({ samples, age_s }) =>
  age_s === null || age_s === undefined ? "not measured yet" : `${ago(age_s)}, ${many(samples, "sample")}`;

function fleetTable(rows) {
  return table("fleet", {
    caption: "Endpoints, with what was heard of them last",
    columns: COLUMNS,
    rows,
    key: (one) => one.id,
    empty: empty(
      "No endpoint is known.",
      "Name one: prefixgate serve --backend http://HOST:PORT, or backends in the configuration. A source of endpoints that finds none is among the degraded parts.",
    ),
  });
}

export function view() {
  const all = endpoints();
  const wanted = choice("fleet:find", "").toLowerCase();
  const rows = (all ?? []).filter(
    (one) => !wanted || [one.id, one.state, one.engine, ...(one.models ?? [])].join(" ").toLowerCase().includes(wanted),
  );
  const up = (all ?? []).filter((one) => one.state === "up" && !one.draining).length;
  return [
    head(
      title,
      all ? `${many(all.length, "endpoint")}, ${count(up)} up` : null,
      h(
        "div",
        { class: "tools" },
        h(
          "div",
          {},
          h("label", { for: "fleet-find" }, "Find"),
          h("input", {
            id: "fleet-find",
            type: "search",
            value: choice("fleet:find", ""),
            oninput: (event) => choose("fleet:find", event.currentTarget.value),
          }),
        ),
      ),
    ),
    all === null
      ? h("p", { class: "empty" }, "Reading …")
      : h(
          "section",
          { class: "card", "aria-label": "Endpoints" },
          wanted && !rows.length
            ? empty("No endpoint has this in its name, state, engine or models.")
            : fleetTable(rows),
        ),
    indexCard(page("api/fleet")),
  ];
}

function indexCard(found) {
  const index = found.data?.index;
  if (!index) return null;
  const facts = [
    ["kept in", index.store === "redis" ? "Redis" : index.store === "process" ? "this process" : UNKNOWN],
    ["nodes", count(index.nodes)],
    ["blocks", count(index.blocks)],
    ["memory, at most", `${bytes(index.estimated_bytes)} of ${bytes(index.max_bytes)}`],
    ["writes on their way", count(index.queued_writes)],
    ["writes dropped", count(index.dropped_writes)],
  ];
  return card(
    "Prefix index",
    index.unreadable ?? index.degraded,
    late(found),
    h(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, told(value)))),
    ),
  );
}

const bytes = (value) =>
  value === null || value === undefined
    ? UNKNOWN
    : value >= 2 ** 30
      ? `${(value / 2 ** 30).toFixed(1)} GiB`
      : value >= 2 ** 20
        ? `${(value / 2 ** 20).toFixed(1)} MiB`
        : `${short(value / 1024)} KiB`;
