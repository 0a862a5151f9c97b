// The terms of a decision, in seconds, as stacked bars. Names are the server's; colours go with names everywhere.

import { h } from "./dom.js";
import { seconds } from "./units.js";

const NAMES = {
  wait_s: "wait",
  prefill_s: "prefill",
  delays_s: "delays to others",
  displacement_s: "displaced prefixes",
  decode_pressure_s: "decode pressure",
  crowding_s: "crowding",
  adapter_load_s: "adapter load",
  adapter_evicts_s: "adapter evicted",
};
const ORDER = Object.keys(NAMES);

/** The terms that a sum is made of, `[name, seconds, colour]`, in an order that is always the same. */
export function termsOf(terms) {
  return Object.entries(terms ?? {})
    .filter(([name, value]) => name.endsWith("_s") && name !== "cost_s" && typeof value === "number")
    .map(([name, value]) => [
      NAMES[name] ?? name.slice(0, -2).replaceAll("_", " "),
      value,
      `s${((ORDER.indexOf(name) + 8) % 8) + 1}`,
      ORDER.indexOf(name),
    ])
    .sort((one, other) => one[3] - other[3]);
}

/** The terms as one bar; `most_s` seconds are its whole width. */
export function termBar(terms, most_s) {
  const parts = termsOf(terms).filter(([, value]) => value > 0);
  const words = parts.map(([name, value]) => `${name} ${seconds(value)}`).join(", ") || "no term above 0 s";
  let from = 0;
  return h(
    "svg",
    { class: "bars", role: "img", "aria-label": words },
    h("rect", { class: "bed", width: "100%", height: "100%", rx: "2" }),
    parts.map(([name, value, colour]) => {
      const [x, width] = [from, (value / most_s) * 100];
      from += width;
      return h(
        "rect",
        { class: `fill ${colour}`, x: `${x}%`, width: `${width}%`, height: "100%" },
        h("title", {}, `${name} ${seconds(value)}`),
      );
    }),
  );
}

/** What the colours mean, of those terms that occur. */
export function termLegend(all) {
  const found = new Map(
    all
      .flatMap(termsOf)
      .filter(([, value]) => value > 0)
      .map((one) => [one[0], one]),
  );
  return h(
    "div",
    { class: "legend" },
    [...found.values()]
      .sort((one, other) => one[3] - other[3])
      .map(([name, , colour]) =>
        h("span", { key: name }, h("span", { class: `swatch ${colour}`, "aria-hidden": "true" }), name),
      ),
  );
}
