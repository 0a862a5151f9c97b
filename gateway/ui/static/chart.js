// Lines over time, as SVG. What is unknown is a gap, never a zero. A table has the same values for who does not see it.
//
//     lineChart("hits", {title, note, points, series: [{name, value, colour, dashed, area}], write, top})

import { h } from "./dom.js";
import { told } from "./parts.js";
import { choice, choose, state, update } from "./state.js";
import { UNKNOWN } from "./units.js";

const HEIGHT = 168;
const [LEFT, RIGHT, TOP, BOTTOM] = [52, 8, 10, 24];
const widths = new Map();

/** Take the widths that charts have on the page; draw again where one has changed. */
export function measure() {
  let changed = false;
  for (const svg of document.querySelectorAll("svg.chart")) {
    const width = Math.round(svg.clientWidth);
    if (width && widths.get(svg.id) !== width) {
      widths.set(svg.id, width);
      changed = true;
    }
  }
  if (changed) update();
}

export function lineChart(id, { title, note, points, series, write, top }) {
  const width = widths.get(`chart-${id}`) ?? 560;
  const times = points.map((one) => new Date(one.at).getTime());
  const values = series.map((one) => points.map((point) => one.value(point) ?? null));
  const high = top ?? niceTop(Math.max(...values.flat().filter((one) => one !== null), 0));
  const x = (at) => LEFT + ((times[at] - times[0]) / Math.max(times.at(-1) - times[0], 1)) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / high) * (HEIGHT - TOP - BOTTOM);
  const at = Math.min(state.choices.get(`cursor:${id}`) ?? -1, points.length - 1);
  const move = (event) => pointAt(id, event, times, x);
  return h(
    "figure",
    { key: id },
    h("figcaption", {}, h("h2", {}, title), legend(series, values, points, at, write)),
    note && h("p", { class: "muted small" }, note),
    h(
      "svg",
      {
        class: "chart",
        id: `chart-${id}`,
        viewBox: `0 0 ${width} ${HEIGHT}`,
        role: "img",
        "aria-label": inWords(title, series, values, write),
        onpointermove: move,
        onpointerdown: move,
        onpointerleave: () => choose(`cursor:${id}`, -1),
      },
      grid(high, y, width, write),
      timeMarks(times, width),
      series.map((one, which) => line(one, values[which], x, y)),
      at >= 0 && h("line", { class: "cursor", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM }),
    ),
    asTable(id, title, points, series, values, write),
  );
}

function pointAt(id, event, times, x) {
  const box = event.currentTarget.getBoundingClientRect();
  const wanted = event.clientX - box.left;
  let best = 0;
  times.forEach((_, at) => {
    if (Math.abs(x(at) - wanted) < Math.abs(x(best) - wanted)) best = at;
  });
  choose(`cursor:${id}`, best);
}

function legend(series, values, points, at, write) {
  return h(
    "div",
    { class: "legend" },
    at >= 0 && h("span", {}, timeOf(points[at].at)),
    series.map((one, which) => {
      const value = at >= 0 ? values[which][at] : lastKnown(values[which]);
      return h(
        "span",
        {},
        h("span", { class: `swatch line ${one.colour} ${one.dashed ? "dashed" : ""}`, "aria-hidden": "true" }),
        one.name,
        " ",
        h("b", {}, told(write(value))),
      );
    }),
  );
}

const lastKnown = (values) => values.findLast((one) => one !== null) ?? null;

function line({ colour, dashed, area }, values, x, y) {
  const runs = [];
  values.forEach((value, at) => {
    if (value === null) return;
    if (at === 0 || values[at - 1] === null) runs.push([]);
    runs.at(-1).push([x(at), y(value)]);
  });
  const written = (run) => run.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" L");
  return h(
    "g",
    { class: colour },
    area &&
      runs.map((run) =>
        h("path", {
          class: "fill area",
          d: `M${run[0][0].toFixed(1)},${y(0)} L${written(run)} L${run.at(-1)[0].toFixed(1)},${y(0)} Z`,
        }),
      ),
    runs.map((run) =>
      run.length === 1
        ? h("circle", { class: "fill", cx: run[0][0], cy: run[0][1], r: 2.2 })
        : h("path", { class: dashed ? "stroke dashed" : "stroke", d: `M${written(run)}` }),
    ),
  );
}

function grid(high, y, width, write) {
  return [0, 0.25, 0.5, 0.75, 1].map((part) =>
    h(
      "g",
      {},
      h("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(part * high), y2: y(part * high) }),
      h(
        "text",
        { x: LEFT - 7, y: y(part * high) + 4, "text-anchor": "end" },
        part === 0 ? "0" : shorter(write(part * high)),
      ),
    ),
  );
}

const shorter = (text) => text.replace(/\.0+(?=\s)/, "").replace(/(\.\d*[1-9])0+(?=\s)/, "$1");

const STEPS_MIN = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360];

function timeMarks(times, width) {
  // at round times of the day, as many as there is room for
  const span = times.at(-1) - times[0];
  if (!(span > 0)) return null;
  const step = 60_000 * (STEPS_MIN.find((one) => span / (one * 60_000) <= width / 75) ?? STEPS_MIN.at(-1));
  const zone = new Date(times[0]).getTimezoneOffset() * 60_000;
  const x = (at) => LEFT + ((at - times[0]) / span) * (width - LEFT - RIGHT);
  const marks = [];
  for (let at = Math.ceil((times[0] - zone) / step) * step + zone; at <= times.at(-1); at += step) marks.push(at);
  return marks.map((at) =>
    h(
      "text",
      { x: Math.min(Math.max(x(at), LEFT + 14), width - RIGHT - 14), y: HEIGHT - 6, "text-anchor": "middle" },
      timeOf(at),
    ),
  );
}

const timeOf = (at) => new Date(at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

function inWords(title, series, values, write) {
  const told = series.map((one, which) => {
    const known = values[which].filter((value) => value !== null);
    return known.length
      ? `${one.name}: ${write(known.at(-1))} at last, from ${write(Math.min(...known))} to ${write(Math.max(...known))}`
      : `${one.name}: ${UNKNOWN}`;
  });
  return `${title}. ${told.join("; ")}. The values are in the table below.`;
}

function asTable(id, title, points, series, values, write) {
  const isOpen = choice(`table:${id}`, false);
  return h(
    "details",
    {
      open: isOpen,
      ontoggle: (event) => event.currentTarget.open !== isOpen && choose(`table:${id}`, event.currentTarget.open),
    },
    h("summary", {}, "Values as a table"),
    isOpen &&
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}, values` },
        h(
          "table",
          {},
          h("caption", {}, `${title}, newest first`),
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", { scope: "col" }, "time"),
              series.map((one) => h("th", { scope: "col", class: "number" }, one.name)),
            ),
          ),
          h(
            "tbody",
            {},
            points
              .map((point, at) =>
                h(
                  "tr",
                  { key: point.at },
                  h("th", { scope: "row" }, timeOf(point.at)),
                  values.map((one) => h("td", { class: "number" }, told(write(one[at])))),
                ),
              )
              .reverse(),
          ),
        ),
      ),
  );
}

/** The least of 1, 2, 4, 8 times a power of ten that is no less than `value`: quarters of it are round. */
function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}
