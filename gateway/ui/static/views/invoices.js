// A preview of a tenant's invoice as it would be drafted now. Nothing is kept by looking at it.

import { h } from "../dom.js";
import { card, empty, head, late, options, unread } from "../parts.js";
import { page } from "../polls.js";
import { choice, choose } from "../state.js";
import { table } from "../table.js";
import { sentence } from "../units.js";
import { monthAt, months } from "./tenants.js";

export const title = "Invoices";
const month = () => choice("invoice:month", monthAt());
const listing = () => `api/tenants?month=${month()}`;
const MOST_NAMES = 500;

function tenants() {
  return [...new Set((page(listing()).data?.tenants ?? []).map((one) => one.tenant))].sort();
}

function tenant() {
  const names = tenants();
  const chosen = choice("invoice:tenant", null);
  return chosen !== null && names.includes(chosen) ? chosen : (names[0] ?? null);
}

const address = () => tenant() !== null && `api/invoices/${encodeURIComponent(tenant())}/${month()}`;
export const pages = () => ({ [listing()]: 30, ...(address() ? { [address()]: 30 } : {}) });

export function view() {
  const names = tenants();
  const tools = h(
    "div",
    { class: "tools" },
    options("invoice-month", "Month", month(), months(), (value) => choose("invoice:month", value)),
    names.length > 0 &&
      options(
        "invoice-tenant",
        "Tenant",
        tenant(),
        names.slice(0, MOST_NAMES).map((name) => [name, name]),
        (value) => choose("invoice:tenant", value),
      ),
  );
  return [
    head(
      title,
      "As they would be drafted now, in the seller's time zone. Nothing is issued or kept by looking.",
      tools,
    ),
    body(),
  ];
}

function body() {
  const listed = page(listing());
  const stand = unread(listed);
  if (stand) return card("Preview", null, stand);
  if (!address())
    return card("Preview", null, empty(`No tenant has used anything in ${month()}.`, "Choose another month."));
  const found = page(address());
  if (found.failure && !found.data) {
    return card(
      "Preview",
      null,
      empty(
        "There is no preview.",
        sentence(found.failure),
        "Invoices need a seller: name its file as invoicing_file in the configuration.",
      ),
    );
  }
  return unread(found)
    ? card("Preview", null, unread(found))
    : [late(found), found.data.documents.map((one) => document_(one, found.data))];
}

function document_(one, { tenant: name, month: when }) {
  const said = `${one.kind.replaceAll("_", " ")} of ${name} for ${when} in ${one.currency}`;
  return h(
    "section",
    { class: "card", key: one.html, "aria-label": said },
    h("h2", {}, one.number ? `${one.number}: ${said}` : `Draft: ${said}`),
    h(
      "p",
      { class: "muted small" },
      `Net ${grouped(one.net)}, tax ${grouped(one.tax)}, total ${grouped(one.total)} ${one.currency}. Days of ${one.time_zone}.`,
    ),
    h("div", { class: "body" }, lines(one, said)),
    h(
      "details",
      { open: true },
      h("summary", {}, "As it would be printed"),
      h("iframe", { class: "invoice", sandbox: "", src: one.html, title: `The printed page: ${said}` }),
    ),
  );
}

const lines = (one, said) =>
  table(`invoice:${one.html}`, {
    caption: `Lines: ${said}`,
    rows: one.lines.map((line, at) => ({ ...line, at })),
    key: (line) => line.at,
    columns: [
      {
        name: "line",
        cell: (line) =>
          h(
            "span",
            {},
            line.description,
            line.group && line.group !== line.description && h("span", { class: "why" }, line.group),
          ),
      },
      {
        name: "quantity",
        number: true,
        cell: (line) => (line.quantity === null ? "" : `${grouped(line.quantity)} ${line.unit ?? ""}`),
      },
      {
        name: "unit price",
        number: true,
        cell: (line) =>
          line.unit_price === null
            ? ""
            : `${line.unit_price} ${one.currency}${line.unit === "tokens" ? " per 1 M" : ""}`,
      },
      { name: "amount", number: true, cell: (line) => `${grouped(line.amount)} ${one.currency}` },
    ],
    empty: empty("The invoice has no lines."),
  });

const grouped = (text) => text.replace(/\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));
