// Decisions as they are made: who was chosen, what that cost in seconds, term by term, and what came of it.

import { h } from "../dom.js";
import { empty, head, pill, told } from "../parts.js";
import { fetchOnce, page } from "../polls.js";
import { choice, choose, state } from "../state.js";
import { paged, table } from "../table.js";
import { termBar, termLegend, termsOf } from "../terms.js";
import { UNKNOWN, clock, count, many, seconds, sentence, share } from "../units.js";

export const title = "Decisions";
export const pages = () => ({});

const ENDED = { complete: "good", partial: "warn", failed: "bad", interrupted: "bad", rejected: "warn" };
const detail = (id) => `api/decisions/${encodeURIComponent(id)}`;

function wanted(all) {
  const text = choice("decisions:find", "").toLowerCase();
  return text
    ? all.filter((one) =>
        [one.request_id, one.tenant, one.model, one.endpoint, one.reason, one.state]
          .join(" ")
          .toLowerCase()
          .includes(text),
      )
    : all;
}

export function view() {
  const all = state.now?.decisions ?? [];
  const held = choice("decisions:held", null);
  const isHeld = held !== null && choice("decisions:open", new Set()).size > 0;
  const fresh = wanted(all);
  const rows = isHeld ? held.map((kept) => all.find((one) => one.request_id === kept.request_id) ?? kept) : fresh;
  const known = isHeld ? fresh.findIndex((one) => one.request_id === rows[0].request_id) : 0;
  const newer = known < 0 ? fresh.length : known;
  const { from, pages } = paged("decisions", rows.length, 25);
  const shown = rows.slice(from, from + 25);
  const most_s = Math.max(...shown.map((one) => one.cost_s ?? 0), 1e-9);
  return [
    head(
      title,
      "Where requests went, newest first. Bars are the terms of the cost, in seconds.",
      h(
        "div",
        { class: "tools" },
        h(
          "div",
          {},
          h("label", { for: "decisions-find" }, "Find"),
          h("input", {
            id: "decisions-find",
            type: "search",
            value: choice("decisions:find", ""),
            oninput: (event) => find(event.currentTarget.value),
          }),
        ),
      ),
    ),
    h(
      "section",
      { class: "card", "aria-label": "Decisions" },
      isHeld &&
        newer > 0 &&
        h(
          "p",
          { class: "newer" },
          h(
            "button",
            { type: "button", onclick: () => choose("decisions:open", new Set()) },
            `Show ${many(newer, "newer decision")}`,
          ),
        ),
      shown.length ? termLegend(shown.map((one) => one.terms)) : nothing(all.length > 0),
      h(
        "div",
        { class: "body" },
        shown.map((one) => decision(one, most_s, rows)),
      ),
      pages,
    ),
  ];
}

function find(text) {
  state.choices.set("decisions:open", new Set());
  state.choices.set("page:decisions", 0);
  choose("decisions:find", text);
}

const nothing = (isFiltered) =>
  isFiltered
    ? empty("No decision has this in its tenant, model, endpoint, reason or id.")
    : empty(
        "No request has been decided on since the gateway started.",
        "Send one, and it appears here within a second. A gateway with scheduling.policy other than prefix decides too, and says so.",
      );

function decision(one, most_s, rows) {
  const open = choice("decisions:open", new Set());
  const toggle = (event) => {
    const isOpen = event.currentTarget.open;
    if (isOpen === open.has(one.request_id)) return;
    const next = new Set(open);
    if (isOpen) next.add(one.request_id);
    else next.delete(one.request_id);
    if (isOpen && !open.size) state.choices.set("decisions:held", rows);
    choose("decisions:open", next);
    if (isOpen) void fetchOnce(detail(one.request_id));
  };
  const isOpen = open.has(one.request_id);
  return h(
    "details",
    { class: "decision", key: one.request_id, open: isOpen, ontoggle: toggle },
    h(
      "summary",
      {},
      h("span", { class: "muted" }, clock(one.opened_at), " "),
      h(
        "span",
        {},
        h("b", {}, one.endpoint, one.rank ? ` rank ${one.rank}` : ""),
        " ",
        h("span", { class: "muted" }, `${one.tenant}, ${one.model}`),
        " ",
      ),
      h("span", {}, one.reason.replaceAll("_", " "), one.state ? " " : h("span", { class: "muted" }, ", under way ")),
      h("span", { class: "wide" }, termBar(one.terms, most_s), " "),
      h("span", { class: "number" }, told(seconds(one.cost_s))),
    ),
    isOpen && h("div", { class: "inside" }, inside(one)),
  );
}

function inside(one) {
  const found = page(detail(one.request_id));
  return [
    h("p", {}, sentence(one.why)),
    facts(one),
    found.data
      ? whole(found.data)
      : h("p", { class: "muted" }, found.failure ? `The candidates cannot be shown: ${found.failure}.` : "Reading …"),
  ];
}

function facts(one) {
  const reported = one.state === null ? "under way" : count(one.reported_cached_tokens);
  const given = [
    ["request", h("code", {}, one.request_id)],
    ["ended", one.state ? pill(ENDED[one.state] ?? "quiet", one.state) : "under way"],
    ["prompt", `${count(one.prompt_tokens)} tokens`.replace(`${UNKNOWN} tokens`, UNKNOWN)],
    ["cached, expected", count(one.expected_cached_tokens)],
    ["cached, reported", reported],
    ["first token, predicted", seconds(one.predicted_ttft_s)],
    ["first token, measured", one.state === null ? "under way" : seconds(one.ttft_s)],
    ["regret", one.state === null ? "under way" : seconds(one.regret_s)],
    one.miss_reason && ["missed, since", one.miss_reason.replaceAll("_", " ").replace(/:(\d+)$/, ", token $1")],
    one.lost_tokens && ["tokens lost", count(one.lost_tokens)],
  ].filter(Boolean);
  return h(
    "dl",
    { class: "facts" },
    given.map(([name, value]) =>
      h("div", { key: name }, h("dt", {}, name), h("dd", {}, typeof value === "string" ? told(value) : value)),
    ),
  );
}

function whole(found) {
  const places = Object.entries(found.terms ?? {}).sort((one, other) => one[1].cost_s - other[1].cost_s);
  const most_s = Math.max(...places.map(([, terms]) => terms.cost_s), 1e-9);
  const chosen = found.rank ? `${found.endpoint}/${found.rank}` : found.endpoint;
  const others = found.others ?? { count: 0 };
  return [
    h("h2", { class: "inner" }, "Candidates, cheapest first"),
    h(
      "div",
      { class: "candidates" },
      places.map(([place, terms]) =>
        h(
          "div",
          { class: place === chosen ? "candidate chosen" : "candidate", key: place },
          h("span", {}, place, place === chosen && " (chosen)"),
          termBar(terms, most_s),
          h("span", { class: "number" }, seconds(terms.cost_s)),
        ),
      ),
    ),
    others.count > 0 &&
      h(
        "p",
        { class: "muted small" },
        `${many(others.count, "more candidate")}, the cheapest at ${seconds(others.least_cost_s)}.`,
      ),
    h("details", {}, h("summary", {}, "Terms as a table"), termTable(found, places, chosen)),
    filtered(found),
  ];
}

function termTable(found, places, chosen) {
  const names = termsOf(places[0]?.[1]).map(([name]) => name);
  const term = (terms, name) => termsOf(terms).find((one) => one[0] === name)?.[1];
  return table(`terms:${found.request_id}`, {
    caption: "Terms of the cost in seconds, and what they come from",
    rows: places,
    key: ([place]) => place,
    empty: null,
    columns: [
      { name: "endpoint", cell: ([place]) => (place === chosen ? `${place} (chosen)` : place) },
      ...names.map((name) => ({ name, number: true, cell: ([, terms]) => seconds(term(terms, name)) })),
      { name: "cost", number: true, cell: ([, terms]) => seconds(terms.cost_s) },
      {
        name: "cached",
        unit: "tokens expected",
        number: true,
        cell: ([place]) => count(found.candidates?.[place]?.expected_cached_tokens),
      },
      {
        name: "queue",
        unit: "tokens",
        number: true,
        cell: ([place]) => count(found.candidates?.[place]?.queued_tokens),
      },
      { name: "KV cache", unit: "in use", number: true, cell: ([place]) => share(found.candidates?.[place]?.kv_use) },
    ],
  });
}

function filtered(found) {
  const named = Object.entries(found.filtered ?? {});
  const more = Object.entries(found.filtered_others ?? {});
  if (!named.length && !more.length) return h("p", { class: "muted small" }, "No endpoint was left out.");
  const why = (reason) => found.filtered_why?.[reason] ?? reason.replaceAll("_", " ");
  return [
    h("h2", { class: "inner" }, "Left out"),
    h(
      "ul",
      { role: "list" },
      named.map(([place, reason]) => h("li", { key: place }, h("b", {}, place), ": ", why(reason))),
      more.map(([reason, number]) => h("li", { key: reason }, `${many(number, "more endpoint")}: `, why(reason))),
    ),
  ];
}
