// A tree that can be walked with the keyboard: up and down, right opens, left closes or goes up, Home and End, `*` opens
// all beside. One of its items can be reached by Tab, the one that was left last.
//
//     tree("prefixes", {label, roots, line}) with nodes {id, kids, ...}; `line(node)` describes an item's cells

import { h } from "./dom.js";
import { choice, choose, update } from "./state.js";

export function tree(id, { label, roots, line }) {
  const open = choice(`open:${id}`, new Set());
  const shown = [];
  walk(roots, 1, null, open, shown);
  const wanted = choice(`at:${id}`, null);
  const at = shown.some((one) => one.node.id === wanted) ? wanted : shown[0]?.node.id;
  const parts = { id, line, open, at };
  return h(
    "ul",
    { class: "tree", role: "tree", "aria-label": label, onkeydown: (event) => key(event, id, shown, at, open) },
    roots.map((node, place) => item(node, 1, place, roots.length, parts)),
  );
}

function item(node, level, place, size, parts) {
  const { id, open, at, line } = parts;
  const isOpen = open.has(node.id);
  const select = (event) => {
    event.stopPropagation();
    choose(`at:${id}`, node.id);
    if (node.kids.length) toggle(id, open, node.id);
  };
  return h(
    "li",
    {
      key: node.id,
      id: itemId(id, node.id),
      role: "treeitem",
      tabindex: node.id === at ? "0" : "-1",
      "aria-level": level,
      "aria-posinset": place + 1,
      "aria-setsize": size,
      "aria-expanded": node.kids.length ? String(isOpen) : undefined,
      "aria-selected": String(node.id === at),
    },
    h(
      "div",
      { class: "node", onclick: select },
      h("span", { class: node.kids.length ? "twist" : "twist leaf", "aria-hidden": "true" }),
      line(node),
    ),
    isOpen &&
      node.kids.length > 0 &&
      h(
        "ul",
        { role: "group" },
        node.kids.map((kid, at) => item(kid, level + 1, at, node.kids.length, parts)),
      ),
  );
}

const itemId = (id, node) => `${id}-${node}`;

function walk(nodes, level, parent, open, into) {
  for (const node of nodes) {
    into.push({ node, parent });
    if (open.has(node.id)) walk(node.kids, level + 1, node, open, into);
  }
}

function toggle(id, open, node) {
  const next = new Set(open);
  if (!next.delete(node)) next.add(node);
  choose(`open:${id}`, next);
}

function key(event, id, shown, at, open) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const place = shown.findIndex((one) => one.node.id === at);
  const { node, parent } = shown[place] ?? {};
  if (!node) return;
  const isOpen = open.has(node.id);
  const go = (to) => to && focus(id, to.id);
  const done = {
    ArrowDown: () => go(shown[place + 1]?.node),
    ArrowUp: () => go(shown[place - 1]?.node),
    Home: () => go(shown[0].node),
    End: () => go(shown.at(-1).node),
    ArrowRight: () => (node.kids.length && !isOpen ? toggle(id, open, node.id) : go(node.kids[0])),
    ArrowLeft: () => (isOpen ? toggle(id, open, node.id) : go(parent)),
    Enter: () => node.kids.length && toggle(id, open, node.id),
    " ": () => node.kids.length && toggle(id, open, node.id),
    "*": () =>
      choose(
        `open:${id}`,
        new Set([...open, ...shown.filter((one) => one.parent === parent).map((one) => one.node.id)]),
      ),
  }[event.key];
  if (!done) return;
  event.preventDefault();
  done();
}

function focus(id, node) {
  choose(`at:${id}`, node);
  update(() => document.getElementById(itemId(id, node))?.focus());
}
