// What views are put together from.

import { h } from "./dom.js";
import { say } from "./state.js";
import { UNKNOWN, sentence } from "./units.js";

/** Text, set apart where it says that nothing is known. */
export const told = (text) => (text === UNKNOWN ? h("span", { class: "unknown" }, text) : text);

/** A card with a heading. */
export function card(title, note, ...body) {
  return h(
    "section",
    { class: "card", key: title },
    h("h2", {}, title),
    note && h("p", { class: "muted small" }, note),
    h("div", { class: "body" }, body),
  );
}

/** The heading of a view, which takes the focus when the view is entered. */
export function head(title, note, tools) {
  return h(
    "div",
    { class: "head" },
    h("div", {}, h("h1", { tabindex: "-1", id: "title" }, title), note && h("p", {}, note)),
    tools,
  );
}

/** Figures side by side: `[name, value, more]`. */
export function tiles(name, figures) {
  return h(
    "dl",
    { class: "tiles", "aria-label": name },
    figures.map(([what, value, more]) =>
      h(
        "div",
        { class: "tile", key: what },
        h("dt", {}, what),
        h("dd", {}, told(value)),
        more && h("dd", { class: "more" }, more),
      ),
    ),
  );
}

/** A shape and a word; kinds are "good", "warn", "bad", "quiet". */
export const pill = (kind, word) =>
  h("span", { class: "pill", "data-kind": kind }, h("span", { class: "sign", "aria-hidden": "true" }), word);

/** A share with a bar beside it. */
export function meter(value, text, colour = "s1") {
  if (value === null || value === undefined) return told(UNKNOWN);
  const width = `${Math.min(Math.max(value, 0), 1) * 100}%`;
  return h(
    "span",
    { class: `meter ${colour}` },
    h(
      "svg",
      { class: "bars", "aria-hidden": "true" },
      h("rect", { class: "bed", width: "100%", height: "100%", rx: "2" }),
      h("rect", { class: "fill", width, height: "100%", rx: "2" }),
    ),
    h("span", { class: "value" }, text),
  );
}

/** What to say where there is nothing, and what to do about it. */
export const empty = (what, ...todo) =>
  h(
    "div",
    { class: "empty" },
    h("strong", {}, what),
    todo.map((one) => (typeof one === "string" ? h("p", {}, one) : one)),
  );

/** While a page was not read yet, or could not be; null where it was. */
export function unread(found) {
  if (found.failure && !found.data) return empty("This cannot be shown now.", sentence(found.failure));
  if (!found.data) return h("p", { class: "empty" }, "Reading …");
  return null;
}

/** A note that what is shown is older than it should be; null where it is not. */
export const late = (found) =>
  found.failure && found.data && h("p", { class: "small wrong", role: "note" }, `Not read anew: ${found.failure}.`);

/** A command with a button that copies it. */
export function command(text) {
  return h(
    "div",
    { class: "command" },
    h("code", {}, text),
    h(
      "button",
      { type: "button", onclick: (event) => copy(text, event.currentTarget), "aria-label": `Copy the command ${text}` },
      "Copy",
    ),
  );
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copyBySelection(text)) {
      say("It cannot be copied here: select it instead");
      return;
    }
  }
  say("Copied");
  const { data } = button.firstChild;
  button.firstChild.data = "Copied";
  setTimeout(() => (button.firstChild.data = data), 1500);
}

function copyBySelection(text) {
  // without TLS browsers have no clipboard for pages
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden-visually";
  document.body.append(field);
  const focused = document.activeElement;
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return done;
}

/** A choice among a few: `[value, label]`. */
export function options(id, label, value, choices, onchange) {
  return h(
    "div",
    {},
    h("label", { for: id }, label),
    h(
      "select",
      { id, onchange: (event) => onchange(event.currentTarget.value) },
      choices.map(([one, text]) => h("option", { value: one, selected: one === value }, text)),
    ),
  );
}
