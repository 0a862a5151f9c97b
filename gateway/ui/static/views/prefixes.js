// The prefixes that weigh most, as the tree they are: hashes and lengths, never text.

import { h } from "../dom.js";
import { card, empty, head, late, meter, options, told, unread } from "../parts.js";
import { page } from "../polls.js";
import { choice, choose, state } from "../state.js";
import { tree } from "../tree.js";
import { UNKNOWN, ago, count, many, short } from "../units.js";

export const title = "Prefixes";
const address = () => `api/prefixes?top=${choice("prefixes:top", "50")}`;
export const pages = () => ({ [address()]: 10 });

const MOST_HOLDERS = 4;

function grown(prefixes) {
  const nodes = new Map(prefixes.map((one) => [one.hash, { ...one, id: one.hash, kids: [] }]));
  const roots = [];
  for (const node of nodes.values()) (nodes.get(node.parent)?.kids ?? roots).push(node);
  return roots;
}

export function view() {
  const found = page(address());
  return [
    head(
      title,
      "The stretches that most stored prompts share. The index holds hashes alone: there is no text to show.",
      h(
        "div",
        { class: "tools" },
        options(
          "top",
          "Show",
          choice("prefixes:top", "50"),
          [
            ["50", "50 heaviest"],
            ["100", "100 heaviest"],
            ["200", "200 heaviest"],
          ],
          (value) => choose("prefixes:top", value),
        ),
      ),
    ),
    card(
      "Hottest prefixes",
      found.data &&
        `${many(found.data.nodes_read, "node")} read${found.data.is_cut ? "; there are more, so prompts and ways on are at least what is said" : ""}.`,
      unread(found) ?? [late(found), body(found.data)],
    ),
  ];
}

function body({ prefixes }) {
  if (!prefixes.length) {
    return empty(
      "The index holds no prefix yet.",
      "It fills with the first requests whose prompts have a whole block. If it stays empty, look at the reasons under Decisions: not tokenized and short prompt leave nothing.",
    );
  }
  const roots = grown(prefixes);
  if (!state.choices.has("open:prefixes"))
    state.choices.set("open:prefixes", new Set(roots.slice(0, 3).map((one) => one.id)));
  const most = Math.max(...prefixes.map((one) => one.weight_tokens ?? 0), 1);
  return tree("prefixes", { label: "Hottest prefixes", roots, line: (one) => line(one, most) });
}

function line(one, most) {
  const holders = (one.holders ?? []).slice(0, MOST_HOLDERS);
  const more = one.holder_count - holders.length;
  const length = one.tokens === null ? UNKNOWN : `+${count(one.tokens)} tokens`;
  const depth = one.depth_tokens === null ? "" : `, to ${count(one.depth_tokens)}`;
  return [
    h("span", {}, h("code", {}, one.hash.slice(0, 12)), " ", told(length), h("span", { class: "muted" }, depth)),
    h(
      "span",
      { class: "figures" },
      h("span", {}, many(one.prompts, "prompt"), " "),
      h("span", {}, `${count(one.fan_out)} way${one.fan_out === 1 ? "" : "s"} on `),
      h("span", {}, ago(one.last_use_s), " "),
      meter(one.weight_tokens === null ? null : one.weight_tokens / most, `${short(one.weight_tokens)} tok`, "s3"),
    ),
    h(
      "span",
      { class: "holders" },
      holders.length
        ? `held by ${holders.join(", ")}${more > 0 ? ` and ${many(more, "other")}` : ""}`
        : "held by nobody any more",
    ),
  ];
}
