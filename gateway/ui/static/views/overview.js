// What is wrong first, and how it is mended; then the figures of the moment, the last hour, and the fleet.

import { h } from "../dom.js";
import { lineChart } from "../chart.js";
import { card, command, empty, head, late, pill, tiles, told } from "../parts.js";
import { page } from "../polls.js";
import { state } from "../state.js";
import { table } from "../table.js";
import { UNKNOWN, clock, count, many, money, rate, seconds, sentence, share, short } from "../units.js";
import { endpoints, kvUse, standing } from "./fleet.js";
import * as traffic from "./traffic.js";

export const title = "Overview";
const DAY = "api/tenants?days=1";
export const pages = () => ({ ...traffic.pages(), [DAY]: 20 });

const MOST_ENDPOINTS = 8;
const MOST_DECISIONS = 6;

export function view() {
  const { now } = state;
  return [
    head(title, null, traffic.periods()),
    now ? troubles(now.health) : h("p", { class: "empty" }, "Reading …"),
    figures(now?.live, traffic.traffic(), page(DAY).data),
    charts(traffic.traffic()),
    h("div", { class: "columns" }, now && fleet(endpoints()), now && last(now.decisions)),
  ];
}

function troubles(health) {
  const all = health?.degraded ?? [];
  if (!health) return h("p", { class: "muted" }, "Whether something is degraded is unknown.");
  if (!all.length)
    return h(
      "p",
      { class: "card calm" },
      pill("good", "Nothing is degraded."),
      h("span", { class: "muted" }, "Every part works as it was configured."),
    );
  return h(
    "section",
    { class: "troubles", "aria-labelledby": "troubles" },
    h("h2", { id: "troubles" }, `${many(all.length, "part")} degraded`),
    all.map(trouble),
  );
}

const trouble = (one) =>
  h(
    "article",
    { class: "trouble", key: one.part, "data-kind": one.part === "ledger" ? "bad" : "warn" },
    h("h3", {}, pill(one.part === "ledger" ? "bad" : "warn", one.part.replaceAll("_", " "))),
    h("p", {}, sentence(one.why)),
    one.meaning && h("p", { class: "muted" }, sentence(one.meaning)),
    one.remedy && h("p", {}, h("b", {}, "To mend it: "), sentence(one.remedy)),
    one.command && command(one.command),
  );

function figures(live, found, day) {
  const total = found.data?.total;
  const missing =
    total && total.hit_share !== null && total.ceiling_share !== null ? total.ceiling_share - total.hit_share : null;
  const period = total && !total.read ? "of what has been read so far" : `last ${traffic.rangeName()}`;
  return tiles("Figures of the moment", [
    [
      "Requests",
      live?.requests_per_s === null || live?.requests_per_s === undefined
        ? UNKNOWN
        : `${short(live.requests_per_s)} /s`,
      `${count(live?.in_flight_requests)} in flight${live?.queued_requests === null || live?.queued_requests === undefined ? "" : `, ${count(live.queued_requests)} queued`}`,
    ],
    ["Prompt tokens", rate(live?.prompt_tokens_per_s), `of which cached ${rate(live?.cached_tokens_per_s)}`],
    [
      "Hit share",
      share(total?.hit_share), // of the ceiling's period: one of ten seconds may well be above it
      live?.window_s
        ? `${period}; last ${count(live.window_s)}\u00a0s ${share(live.hit_share)}, expected ${share(live.expected_share)}`
        : period,
    ],
    [
      "Ceiling",
      share(total?.ceiling_share),
      missing === null ? period : `${(missing * 100).toFixed(1)} points above the hit share, ${period}`,
    ],
    [
      "First token, p50",
      seconds(total?.ttft_s?.p50),
      total?.ttft_s?.p99 ? `p99 ${seconds(total.ttft_s.p99)}, ${period}` : period,
    ],
    ...saved(day),
  ]);
}

function saved(day) {
  const priced = (day?.totals ?? []).filter((one) => one.currency !== null);
  if (!priced.length)
    return [["Saved by caching", UNKNOWN, day ? "nothing with a price in 24 hours" : "last 24 hours"]];
  return priced
    .slice(0, 2)
    .map((one) => [
      priced.length > 1 ? `Saved, ${one.currency}` : "Saved by caching",
      money(one.saved, one.currency),
      `spend ${money(one.charged, one.currency)}, 24 hours`,
    ]);
}

function charts(found) {
  const stand = traffic.blank(found);
  if (stand) return card("Traffic", null, late(found), stand);
  return [
    late(found),
    h(
      "div",
      { class: "columns" },
      [traffic.HITS, traffic.TTFT].map(([id, chart]) =>
        h("section", { class: "card", key: id }, lineChart(`overview-${id}`, { ...chart, points: found.data.points })),
      ),
    ),
  ];
}

function fleet(all) {
  const fuller = (one, other) => (all.length > MOST_ENDPOINTS ? (other.kv_use ?? -1) - (one.kv_use ?? -1) : 0); // few stay where they are
  const worst = [...all].sort((one, other) => (one.state === "up") - (other.state === "up") || fuller(one, other));
  return card(
    "Fleet",
    null,
    table("overview-fleet", {
      caption:
        all.length > MOST_ENDPOINTS
          ? `${MOST_ENDPOINTS} of ${count(all.length)}: those in trouble first, then the fullest`
          : `${many(all.length, "endpoint")}`,
      rows: worst.slice(0, MOST_ENDPOINTS),
      key: (one) => one.id,
      empty: empty("No endpoint is known.", "Name one: prefixgate serve --backend http://HOST:PORT"),
      columns: [
        { name: "endpoint", cell: (one) => one.id },
        { name: "state", cell: standing },
        { name: "KV cache", unit: "in use", number: true, cell: kvUse },
        { name: "sent", unit: "in flight", number: true, cell: (one) => count(one.in_flight_requests) },
        { name: "hit share", unit: "reported", number: true, cell: (one) => share(one.hit_share) },
      ],
    }),
    all.length > 0 && h("p", { class: "small onward" }, h("a", { href: "#fleet" }, "All of the fleet")),
  );
}

function last(decisions) {
  return card(
    "Last decisions",
    null,
    table("overview-decisions", {
      caption: "Newest first",
      rows: decisions.slice(0, MOST_DECISIONS),
      key: (one) => one.request_id,
      empty: empty("No request has been decided on yet.", "Send one, and it appears here within a second."),
      columns: [
        { name: "time", cell: (one) => clock(one.opened_at) },
        { name: "tenant", cell: (one) => one.tenant },
        { name: "endpoint", cell: (one) => one.endpoint },
        { name: "reason", cell: (one) => one.reason.replaceAll("_", " ") },
        {
          name: "cached",
          unit: "of prompt",
          number: true,
          cell: (one) =>
            h(
              "span",
              {},
              one.state === null ? "under way" : told(count(one.reported_cached_tokens)),
              " of ",
              told(count(one.prompt_tokens)),
            ),
        },
        { name: "cost", number: true, cell: (one) => seconds(one.cost_s) },
      ],
    }),
    decisions.length > 0 &&
      h("p", { class: "small onward" }, h("a", { href: "#decisions" }, "All decisions, term by term")),
  );
}
