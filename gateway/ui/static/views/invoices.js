// A preview of a tenant's invoice as it would be drafted now. Nothing is kept by looking at it.

import { h } from "../dom.js";
import { card, empty, head, late, options, told, unread } from "../parts.js";
import { page } from "../polls.js";
import { choice, choose } from "../state.js";
import { table } from "../table.js";
import { money } from "../units.js";
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
  return chosen !== null && names.includes(chosen) ? chosen : names[0] ?? null;
}

const address = () => tenant() !== null && `api/invoices/${encodeURIComponent(tenant())}/${month()}`;
export const pages = () => ({ [listing()]: 30, ...(address() ? { [address()]: 30 } : {}) });

export function view() {
  const names = tenants();
  const tools = h("div", { class: "tools" },
    options("invoice-month", "Month", month(), months(), (value) => choose("invoice:month", value)),
    names.length > 0 && options("invoice-tenant", "Tenant", tenant(), names.slice(0, MOST_NAMES).map((name) => [name, name]), (value) => choose("invoice:tenant", value)));
  return [head(title, "As they would be drafted now, in the seller's time zone. Nothing is issued or kept by looking.", tools), body()];
}

function body() {
  const listed = page(listing());
  const stand = unread(listed);
  if (stand) return card("Preview", null, stand);
  if (!address()) return card("Preview", null, empty(`No tenant has used anything in ${month()}.`, "Choose another month."));
  const found = page(address());
  if (found.failure && !found.data) {
    return card("Preview", null, empty("There is no preview.", `${found.failure}.`, "Invoices need a seller: name its file as invoicing_file in the configuration."));
  }
  return unread(found) ? card("Preview", null, unread(found)) : [late(found), found.data.documents.map(document_), h("section", { class: "card", "aria-label": "The page itself" },
    h("h2", {}, "The page itself"), h("div", { class: "body" }, h("iframe", { class: "invoice", key: found.data.html, sandbox: "", src: found.data.html, title: `Invoice of ${found.data.tenant} for ${found.data.month}, a preview`, loading: "lazy" })))];
}

function document_(one) {
  const written = (text) => told(money(text, one.currency));
  return card(`In ${one.currency ?? "no currency"}`, null, table(`invoice:${one.currency}`, {
    caption: `Lines of the invoice; net ${money(one.net, one.currency)}, tax ${money(one.tax, one.currency)}, total ${money(one.total, one.currency)}`,
    rows: one.lines.map((line, at) => ({ ...line, at })), key: (line) => line.at,
    columns: [
      { name: "line", cell: (line) => line.description },
      { name: "quantity", number: true, cell: (line) => line.quantity ?? "" },
      { name: "unit price", number: true, cell: (line) => line.unit_price ?? "" },
      { name: "amount", number: true, cell: (line) => written(line.amount) },
    ],
    empty: empty("The invoice has no lines."),
  }));
}
