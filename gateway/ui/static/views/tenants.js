// What tenants used, what it cost them, and what they saved because it was cached. Amounts are exact text of the server.

import { h } from "../dom.js";
import { card, command, empty, head, late, meter, options, tiles, told, unread } from "../parts.js";
import { page } from "../polls.js";
import { choice, choose } from "../state.js";
import { table } from "../table.js";
import { UNKNOWN, count, many, money, share, short } from "../units.js";

export const title = "Tenants";
const PERIODS = [
  ["days=1", "24 hours"],
  ["days=7", "7 days"],
  ["days=31", "31 days"],
];

/** The month of an instant, or one before, in UTC: "2026-11". */
export function monthAt(back = 0) {
  const now = new Date();
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1)).toISOString().slice(0, 7);
}

/** Months to choose from, newest first. */
export const months = () => Array.from({ length: 12 }, (_, back) => [monthAt(back), monthAt(back)]);

const address = () => `api/tenants?${choice("tenants:period", "days=1")}`;
export const pages = () => ({ [address()]: 15 });

const amount = (text, currency) =>
  h("span", { title: text === null ? undefined : `${text} ${currency}` }, told(money(text, currency)));
const number = (text) => (text === null || text === undefined ? null : Number(text));

// Requests under way have no currency yet: they are told beside what their tenant has used.
function folded(rows) {
  const isUnderWay = (one) => one.currency === null && one.requests === one.in_flight && isUsage(one);
  const settled = rows.filter((one) => !isUnderWay(one));
  const first = new Map(settled.map((one) => [one.tenant, one]).reverse());
  const under = new Map(rows.filter(isUnderWay).map((one) => [one.tenant, one]));
  return [
    ...settled.map((one) =>
      first.get(one.tenant) === one ? { ...one, under_way: under.get(one.tenant)?.requests ?? 0 } : one,
    ),
    ...[...under.values()]
      .filter((one) => !first.has(one.tenant))
      .map((one) => ({ ...one, under_way: one.requests, is_new: true })),
  ];
}

const isUsage = (one) => (one.kind ?? "usage") === "usage";
const used = (write) => (one) => (isUsage(one) ? write(one) : ""); // a correction has amounts alone

const COLUMNS = [
  {
    name: "tenant",
    by: (one) => one.tenant,
    cell: (one) =>
      h("span", {}, one.tenant, !isUsage(one) && h("span", { class: "why" }, one.kind.replaceAll("_", " "))),
  },
  {
    name: "requests",
    number: true,
    by: (one) => one.requests,
    cell: used((one) =>
      h(
        "span",
        {},
        count(one.requests),
        one.under_way > 0 && h("span", { class: "why" }, `${count(one.under_way)} under way`),
        one.failed > 0 && h("span", { class: "why" }, `${count(one.failed)} failed`),
      ),
    ),
  },
  {
    name: "fresh",
    unit: "tokens",
    number: true,
    by: (one) => one.fresh_tokens,
    cell: used((one) => count(one.fresh_tokens)),
  },
  {
    name: "cached",
    unit: "tokens",
    number: true,
    by: (one) => one.cached_tokens,
    cell: used((one) =>
      h(
        "span",
        {},
        told(count(one.cached_tokens)),
        one.unreported_prompt_tokens > 0 &&
          h("span", { class: "why" }, `${count(one.unreported_prompt_tokens)} not reported`),
      ),
    ),
  },
  {
    name: "output",
    unit: "tokens",
    number: true,
    by: (one) => one.output_tokens,
    cell: used((one) => count(one.output_tokens)),
  },
  {
    name: "hit share",
    unit: "reported",
    number: true,
    by: (one) => one.hit_share,
    cell: used((one) => meter(one.hit_share, share(one.hit_share))),
  },
  {
    name: "spend",
    number: true,
    by: (one) => number(one.charged),
    cell: (one) =>
      h(
        "span",
        {},
        price(one, one.charged),
        one.unknown_amounts > 0 && h("span", { class: "why" }, `${many(one.unknown_amounts, "amount")} unknown`),
      ),
  },
  {
    name: "saved",
    unit: "by caching",
    number: true,
    by: (one) => number(one.saved),
    cell: (one) => price(one, one.saved),
  },
];

const price = (one, text) =>
  one.currency === null
    ? h("span", { class: "unknown" }, one.is_new ? "under way" : "no price")
    : amount(text, one.currency);

export function view() {
  const found = page(address());
  const stand = unread(found);
  const tools = h(
    "div",
    { class: "tools" },
    options(
      "tenants-period",
      "Period",
      choice("tenants:period", "days=1"),
      [...PERIODS, ...months().map(([month]) => [`month=${month}`, month])],
      (value) => choose("tenants:period", value),
    ),
  );
  return [
    head(title, "What they used, what that cost them, and what it would have cost had nothing been cached.", tools),
    stand ? card("Usage", null, stand) : body(found),
  ];
}

function body(found) {
  const tenants = folded(found.data.tenants);
  const totals = found.data.totals.filter((one) => one.currency !== null || one.requests > (one.in_flight ?? 0));
  return [
    late(found),
    totals.map((one) =>
      tiles(`Totals in ${one.currency ?? "no currency"}`, [
        [
          one.currency === null ? "Without a price" : "Spend",
          one.currency === null ? `${short(one.requests)} requests` : money(one.charged, one.currency),
          one.currency === null
            ? "models that the price book does not know"
            : `at full price ${money(one.full_price, one.currency)}${one.unknown_amounts > 0 ? `, without ${many(one.unknown_amounts, "amount")} unknown` : ""}`,
        ],
        ["Saved by caching", one.currency === null ? UNKNOWN : money(one.saved, one.currency), saving(one)],
        ["Hit share", share(one.hit_share), `${short(one.cached_tokens)} of ${short(one.prompt_tokens)} prompt tokens`],
        [
          "Output",
          one.output_tokens === null ? UNKNOWN : `${short(one.output_tokens)} tok`,
          `${count(one.requests)} requests`,
        ],
      ]),
    ),
    h(
      "section",
      { class: "card", "aria-label": "Usage by tenant" },
      table("tenants", {
        caption: `Usage from ${day(found.data.from)} to ${day(found.data.to)}`,
        columns: COLUMNS,
        rows: tenants,
        key: (one) => `${one.tenant} ${one.kind} ${one.currency}`,
        empty: empty(
          "No tenant has used anything in this period.",
          "Choose a longer one. A tenant's key is made by:",
          command("prefixgate keys create TENANT"),
        ),
      }),
    ),
  ];
}

const day = (text) => new Date(text).toISOString().slice(0, 16).replace("T", " ") + " UTC";

function saving(one) {
  const [saved, full] = [number(one.saved), number(one.full_price)];
  return saved === null || !full ? null : `${share(saved / full)} of the full price`;
}
