// Tables: sorted by a column, a page at a time, so that ten thousand rows cost what fifty do.
//
//     table("endpoints", {caption, columns: [{name, unit, number, cell, by}], rows, key, empty})
//
// `cell(row)` describes a cell, `by(row)` is what its column sorts by (null, the unknown, goes last). Where the screen is
// narrow a row becomes a list of its cells, each with the name of its column.

import { h } from "./dom.js";
import { told } from "./parts.js";
import { choice, choose } from "./state.js";
import { count } from "./units.js";

const ROWS = 50;

export function table(id, { caption, columns, rows, key, empty, most = ROWS }) {
  if (!rows.length) return empty;
  const order = choice(`order:${id}`, null);
  const sorted = order
    ? [...rows].sort(
        comparing(
          columns.find((one) => one.name === order.name),
          order.falling,
        ),
      )
    : rows;
  const { from, pages } = paged(id, sorted.length, most);
  return h(
    "div",
    { key: id },
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      h(
        "table",
        { class: "stack" },
        h("caption", {}, caption),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            columns.map((one) => heading(id, one, order)),
          ),
        ),
        h(
          "tbody",
          {},
          sorted.slice(from, from + most).map((row) =>
            h(
              "tr",
              { key: key(row) },
              columns.map((one, at) => cell(one, row, at)),
            ),
          ),
        ),
      ),
    ),
    pages,
  );
}

function cell(column, row, at) {
  const what = column.cell(row);
  const described = typeof what === "string" ? told(what) : what;
  const classes = column.number ? "number" : undefined;
  return at === 0
    ? h("th", { scope: "row", class: classes }, described)
    : h("td", { class: classes, "data-name": column.name }, h("span", {}, described));
}

function heading(id, { name, unit, number, by }, order) {
  const isOrder = order?.name === name;
  const direction = isOrder ? (order.falling ? "descending" : "ascending") : undefined;
  const text = [h("span", {}, name), unit && h("small", {}, unit)];
  return h(
    "th",
    { scope: "col", class: number ? "number" : undefined, "aria-sort": direction },
    by
      ? h(
          "button",
          { type: "button", class: "plain sort", onclick: () => choose(`order:${id}`, next(name, isOrder && order)) },
          text,
          isOrder && h("span", { class: "arrow", "aria-hidden": "true" }, order.falling ? "↓" : "↑"),
        )
      : h("span", {}, text),
  );
}

function next(name, order) {
  // falling, rising, as it came
  if (!order) return { name, falling: true };
  return order.falling ? { name, falling: false } : null;
}

function comparing({ by }, falling) {
  return (one, other) => {
    const [a, b] = [by(one) ?? null, by(other) ?? null];
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return falling ? -order : order;
  };
}

/** Where the page begins that was chosen of a list, and what turns it. */
export function paged(id, length, most = ROWS) {
  const last = Math.max(Math.ceil(length / most) - 1, 0);
  const at = Math.min(choice(`page:${id}`, 0), last);
  const turn = (to) => choose(`page:${id}`, to);
  const pages =
    last > 0 &&
    h(
      "div",
      { class: "pages", role: "group", "aria-label": "Pages" },
      h("button", { type: "button", disabled: at === 0, onclick: () => turn(at - 1) }, "Previous"),
      h("span", {}, `${count(at * most + 1)} to ${count(Math.min((at + 1) * most, length))} of ${count(length)}`),
      h("button", { type: "button", disabled: at === last, onclick: () => turn(at + 1) }, "Next"),
    );
  return { from: at * most, pages };
}
