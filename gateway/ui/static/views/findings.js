// What in live prompts keeps them from being cached, with what that costs a day and how it is mended; and the fixes.

import { h } from "../dom.js";
import { card, command, empty, head, late, pill, told, unread } from "../parts.js";
import { page } from "../polls.js";
import { paged, table } from "../table.js";
import { UNKNOWN, ago, count, many, money, share } from "../units.js";

export const title = "Findings";
export const pages = () => ({ "api/findings": 20 });

const LEVELS = { error: "bad", warning: "warn", note: "quiet", info: "quiet" };
const SAFETY = { safe: "safe to change", consent: "changes what the model reads: ask its owner" };
const MOST = 20;

export function view() {
  const found = page("api/findings");
  const stand = unread(found);
  const lint = found.data?.lint;
  const heading = head(
    title,
    "Where prompts part from earlier ones although most of what follows is the same, dearest first.",
  );
  if (stand) return [heading, card("Findings of live traffic", null, stand)];
  const { from, pages: turned } = paged("findings", lint.findings.length, MOST);
  return [
    heading,
    late(found),
    card(
      "Findings of live traffic",
      `${many(lint.requests, "request")} seen, ${many(lint.kinds_of_calls, "kind")} of calls.`,
      lint.findings.length ? lint.findings.slice(from, from + MOST).map(finding) : none(lint),
      turned,
    ),
    lint.calls.length > 0 &&
      card("Kinds of calls", "How many requests there were, and how many continued no earlier one.", calls(lint.calls)),
    fixes(found.data.fixes),
  ];
}

const none = (lint) =>
  lint.requests
    ? empty(
        "Nothing keeps live prompts from being cached.",
        "Places count where 5 requests or more have changed and lost 16 tokens each. What source files hide is found by:",
        command("prefixgate lint PATH"),
      )
    : empty("No prompt has been seen yet.", "Findings appear after a few requests of the same kind.");

function finding(one) {
  const facts = [
    ["whose", `${one.tenant}, ${one.model}`],
    ["route", one.route],
    ["place", one.place + range(one)],
    ["what changes", one.cause ?? UNKNOWN],
    ["requests", `${count(one.requests)} of ${count(one.of_requests)}`],
    ["tokens lost a day", count(one.lost_tokens_a_day)],
    ["money lost a day", one.money_a_day === null ? "no price" : money(one.money_a_day, one.currency)],
    ["seen last", ago((Date.now() - new Date(one.last_seen)) / 1000)],
  ];
  return h(
    "article",
    { class: "finding", key: [one.rule, one.tenant, one.model, one.route, one.place].join(" ") },
    h(
      "h3",
      {},
      pill(LEVELS[one.level] ?? "quiet", one.level),
      " ",
      one.what,
      " ",
      h("code", { class: "muted" }, one.rule),
    ),
    h("p", {}, one.why),
    h(
      "p",
      {},
      h("b", {}, "To mend it: "),
      one.fix,
      one.safety && h("span", { class: "muted" }, ` (${SAFETY[one.safety] ?? one.safety})`),
    ),
    h(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, told(value)))),
    ),
  );
}

function range(one) {
  if (one.first_token === null || one.first_token === undefined) return "";
  return one.first_token === one.last_token
    ? `, token ${count(one.first_token)}`
    : `, tokens ${count(one.first_token)} to ${count(one.last_token)}`;
}

function calls(rows) {
  return table("calls", {
    caption: "Calls by tenant, model and route",
    rows,
    key: (one) => `${one.tenant} ${one.model} ${one.route}`,
    most: 20,
    empty: null,
    columns: [
      { name: "tenant", by: (one) => one.tenant, cell: (one) => one.tenant },
      { name: "model", by: (one) => one.model, cell: (one) => one.model },
      { name: "route", cell: (one) => h("code", {}, one.route) },
      { name: "requests", number: true, by: (one) => one.requests, cell: (one) => count(one.requests) },
      { name: "begun", unit: "continued none", number: true, by: (one) => one.begun, cell: (one) => count(one.begun) },
      { name: "parted in", cell: (one) => parted(one.parted_in) },
    ],
  });
}

const parted = (places) =>
  Object.entries(places ?? {})
    .sort((one, other) => other[1] - one[1])
    .slice(0, 3)
    .map(([place, number]) => `${place} (${count(number)})`)
    .join(", ") || "nothing";

function fixes({ rules, shadow, arms }) {
  if (!rules.length) {
    return card(
      "Fixes",
      null,
      empty(
        "No request is changed on its way.",
        "Where a tenant agrees, the gateway can move what changes behind what does not: see fixes in the configuration. In shadow it only measures what that would gain.",
      ),
    );
  }
  return card(
    "Fixes",
    `${many(rules.length, "rule")} in the configuration.`,
    table("shadow", {
      caption: "What fixes in shadow would gain",
      rows: shadow,
      key: (one) => `${one.tenant} ${one.fixes}`,
      empty: empty("Nothing has been measured in shadow."),
      columns: [
        { name: "tenant", cell: (one) => one.tenant },
        { name: "fixes", cell: (one) => String(one.fixes) },
        { name: "requests", number: true, cell: (one) => count(one.requests) },
        { name: "cached", unit: "as it is", number: true, cell: (one) => share(one.cached_share) },
        { name: "cached", unit: "if fixed", number: true, cell: (one) => share(one.cached_share_fixed) },
      ],
    }),
    arms.length > 0 &&
      table("arms", {
        caption: "Both sides of comparisons",
        rows: arms,
        key: (one) => `${one.tenant} ${one.fixes} ${one.arm}`,
        empty: null,
        columns: [
          { name: "tenant", cell: (one) => one.tenant },
          { name: "fixes", cell: (one) => String(one.fixes) },
          { name: "side", cell: (one) => String(one.arm) },
          { name: "hit share", number: true, cell: (one) => share(one.hit_share) },
          {
            name: "output",
            unit: "tokens, mean",
            number: true,
            cell: (one) => (one.output_tokens_mean === null ? UNKNOWN : one.output_tokens_mean.toFixed(1)),
          },
        ],
      }),
  );
}
