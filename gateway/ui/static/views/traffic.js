// Traffic over time, out of the ledger: the hit share against its ceiling, what was expected, and what clients waited for.

import { h } from "../dom.js";
import { lineChart } from "../chart.js";
import { card, empty, head, late, meter, options, unread } from "../parts.js";
import { page } from "../polls.js";
import { choice, choose } from "../state.js";
import { table } from "../table.js";
import { count, seconds, share } from "../units.js";

const RANGES = [
  ["15m", "15 minutes"],
  ["1h", "1 hour", "hour"],
  ["3h", "3 hours"],
  ["24h", "24 hours"],
];

const address = () => `api/traffic?range=${choice("range", "1h")}`;
export const pages = () => ({ [address()]: 15 });
/** The traffic of the period that was chosen. */
export const traffic = () => page(address());

/** That period, behind "the last". */
export function rangeName() {
  const [, label, behindTheLast] = RANGES.find(([value]) => value === choice("range", "1h"));
  return behindTheLast ?? label;
}

/** Chooses the period; the same in all views. */
export const periods = () =>
  h(
    "div",
    { class: "tools" },
    options("range", "Period", choice("range", "1h"), RANGES, (value) => choose("range", value)),
  );

/** What stands for charts where there is nothing to draw: null where there is. That nothing was read is not nothing. */
export function blank(found) {
  const stand = unread(found);
  if (stand) return stand;
  if (!found.data.points.some((one) => one.read))
    return empty("The ledger is being read.", "Figures of the period appear as they are read, newest first.");
  return found.data.total.requests === 0 ? nothing() : null;
}

const nothing = () =>
  empty(
    `No requests in the last ${rangeName()}.`,
    "Figures appear once requests have been answered: point a client at the gateway, such as curl -H 'authorization: Bearer KEY' …/v1/chat/completions. Or choose a longer period.",
  );

function charts(found, ...described) {
  const stand = blank(found);
  if (stand) return card("Traffic", null, late(found), stand);
  return [
    late(found),
    h(
      "div",
      { class: "columns" },
      described.map((one) =>
        h("section", { class: "card", key: one[0] }, lineChart(one[0], { ...one[1], points: found.data.points })),
      ),
    ),
  ];
}

export const HITS = [
  "hits",
  {
    title: "Hit share against the ceiling",
    note: "Prompt tokens that engines reported as cached. The ceiling: had every block ever seen been kept where it could be used.",
    write: share,
    top: 1,
    series: [
      { name: "reported", colour: "s1", area: true, value: (one) => one.hit_share },
      { name: "ceiling", colour: "s2", dashed: true, value: (one) => one.ceiling_share },
    ],
  },
];
const EXPECTED = [
  "expected",
  {
    title: "Expected against reported",
    note: "What the index said would be cached, and what the engines then said was.",
    write: share,
    top: 1,
    series: [
      { name: "reported", colour: "s1", value: (one) => one.hit_share },
      { name: "expected", colour: "s3", dashed: true, value: (one) => one.expected_share },
    ],
  },
];
const percentiles = (field) => [
  { name: "p50", colour: "s1", value: (one) => one[field]?.p50 },
  { name: "p90", colour: "s3", value: (one) => one[field]?.p90 },
  { name: "p99", colour: "s2", dashed: true, value: (one) => one[field]?.p99 },
];
export const TTFT = [
  "ttft",
  {
    title: "Time to first token",
    note: "Of streams, as clients saw it.",
    write: seconds,
    series: percentiles("ttft_s"),
  },
];
const ITL = [
  "itl",
  {
    title: "Time between tokens",
    note: "Of streams, as clients saw it.",
    write: seconds,
    series: percentiles("itl_s"),
  },
];
const REQUESTS = [
  "requests",
  {
    title: "Requests",
    note: "Opened in each interval, and those that failed.",
    write: count,
    series: [
      { name: "all", colour: "s1", area: true, value: (one) => one.requests },
      { name: "failed", colour: "s2", value: (one) => one.failed },
    ],
  },
];
const TOKENS = [
  "tokens",
  {
    title: "Prompt tokens",
    note: "All, and those that were reported as cached.",
    write: count,
    series: [
      { name: "prompt", colour: "s6", value: (one) => one.prompt_tokens },
      { name: "cached", colour: "s1", area: true, value: (one) => one.cached_tokens },
    ],
  },
];

export const cache = {
  title: "Cache",
  pages,
  view() {
    const found = traffic();
    return [
      head("Cache", "How much of the prompts was already there, and how much could have been.", periods()),
      charts(found, HITS, EXPECTED, TOKENS),
      !blank(found) && misses(found.data),
    ];
  },
};

export const latency = {
  title: "Latency",
  pages,
  view: () => [head("Latency", "What clients waited for.", periods()), charts(traffic(), TTFT, ITL, REQUESTS)],
};

const WORDS = {
  cold: "nothing of the prompt was known anywhere",
  prompt_changed: "the prompt parts from an earlier one: see Findings",
  evicted: "it had been there, and made room for others",
  restarted: "the engine that had it has started anew",
  routed_elsewhere: "another endpoint had more of it",
  expired: "it was used more than a day ago",
  tokens_degraded: "our tokens are not the engine's: run prefixgate check",
  unknown: "the prompt's tokens are not known",
};

const kindOf = ({ reason }) => reason.split(":")[0];

function misses({ misses: rows, total }) {
  const most = Math.max(...rows.map((one) => one.lost_tokens ?? 0), 1);
  return card(
    "Why tokens were not cached",
    `Tokens that had been seen before and were computed again, by reason.${total.read ? "" : " Only a part of the period has been read so far."}`,
    table("misses", {
      caption: `Misses of the last ${rangeName()}`,
      rows,
      key: (one) => one.reason,
      columns: [
        {
          name: "reason",
          cell: (one) =>
            h(
              "span",
              {},
              one.reason.replaceAll("_", " "),
              WORDS[kindOf(one)] && h("span", { class: "why" }, WORDS[kindOf(one)]),
            ),
        },
        {
          name: "requests",
          number: true,
          by: (one) => one.requests,
          cell: (one) =>
            h(
              "span",
              {},
              count(one.requests),
              one.unknown > 0 && h("span", { class: "why" }, `tokens of ${count(one.unknown)} unknown`),
            ),
        },
        {
          name: "tokens",
          unit: "lost",
          number: true,
          by: (one) => one.lost_tokens,
          cell: (one) => meter(one.lost_tokens === null ? null : one.lost_tokens / most, count(one.lost_tokens), "s2"),
        },
        {
          name: "of prompt",
          unit: "tokens",
          number: true,
          cell: (one) =>
            share(total.prompt_tokens && one.lost_tokens !== null ? one.lost_tokens / total.prompt_tokens : null),
        },
        {
          name: "avoidable",
          cell: (one) =>
            one.avoidable === null || one.avoidable === undefined ? "unknown" : one.avoidable ? "yes" : "no",
        },
      ],
      empty: empty(
        "Nothing was missed that had been seen before.",
        "Engines must report cached tokens for this: vLLM needs --enable-prompt-tokens-details, SGLang --enable-cache-report.",
      ),
    }),
  );
}
