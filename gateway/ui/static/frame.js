// The frame around every view: the bar, the list of views, and the page for logging in.

import { h } from "./dom.js";
import { pause } from "./live.js";
import { pill } from "./parts.js";
import { say, state, update } from "./state.js";
import { nextTheme, theme } from "./theme.js";
import { sentence } from "./units.js";

const LINKS = {
  connecting: ["quiet", "connecting"],
  live: ["good", "live"],
  reconnecting: ["warn", "reconnecting"],
  stale: ["bad", "stale"],
  full: ["warn", "not live"],
};

export function frame(views, onLogout) {
  const view = views[state.view];
  return [
    h("a", { class: "skip", href: "#title", onclick: skip }, "Skip to the view"),
    h(
      "div",
      { class: "frame" },
      h(
        "header",
        { class: "top" },
        h("span", { class: "brand" }, mark(), "prefixgate"),
        h("span", { class: "at small" }, state.session.version),
        linkState(),
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(state.paused !== null),
            onclick: () => pause(state.paused === null),
          },
          state.paused ? "Go on" : "Pause",
        ),
        h("button", { type: "button", onclick: changeTheme }, `Colours: ${theme()}`),
        h("button", { type: "button", onclick: onLogout }, "Log out"),
      ),
      h(
        "nav",
        { class: "views", "aria-label": "Views" },
        h(
          "ul",
          { role: "list" },
          Object.entries(views).map(([name, one]) =>
            h(
              "li",
              { key: name },
              h(
                "a",
                { href: `#${name}`, "aria-current": name === state.view ? "page" : undefined },
                one.title,
                name === "overview" && badge(),
              ),
            ),
          ),
        ),
      ),
      h("main", { id: "main", key: state.view }, view.view()),
    ),
  ];
}

function mark() {
  return h(
    "svg",
    {
      viewBox: "0 0 24 24",
      fill: "none",
      stroke: "currentColor",
      "stroke-width": "2.4",
      "stroke-linecap": "round",
      "aria-hidden": "true",
    },
    h("path", { d: "M4 12h7M11 12c4 0 3-7 9-7M11 12h9M11 12c4 0 3 7 9 7" }),
  );
}

function skip(event) {
  event.preventDefault();
  document.getElementById("title")?.focus();
}

function badge() {
  const number = state.now?.health?.degraded.length ?? 0;
  return (
    number > 0 && h("span", { class: "badge" }, String(number), h("span", { class: "hidden-visually" }, " degraded"))
  );
}

function changeTheme() {
  nextTheme();
  say(`Colours: ${theme()}`);
  update();
}

function linkState() {
  const time = (at) => at.toLocaleTimeString("en-GB");
  const [kind, word] = state.paused ? ["quiet", "paused"] : LINKS[state.link];
  const since = state.paused ?? (state.link === "stale" || state.link === "full" ? state.lastHeard : null);
  return h(
    "span",
    { class: "live", id: "link" },
    h(
      "span",
      { class: "pill", "data-kind": kind, "data-state": state.link, title: state.linkWhy ?? undefined },
      h("span", { class: "sign", "aria-hidden": "true" }),
      since ? `${word} since ${time(since)}` : word,
      state.link === "full" && !state.paused && h("span", { class: "hidden-visually" }, `: ${state.linkWhy}`),
    ),
  );
}

/** The page for logging in. */
export function entrance(onLogin) {
  const submit = (event) => {
    event.preventDefault();
    onLogin(event.currentTarget.elements.token.value.trim());
  };
  return h(
    "main",
    { class: "enter" },
    h(
      "section",
      { class: "card" },
      h(
        "div",
        {},
        h("p", { class: "brand" }, mark(), "prefixgate"),
        h("h1", { class: "hidden-visually", tabindex: "-1", id: "title" }, "Log in to prefixgate"),
      ),
      h(
        "form",
        { onsubmit: submit },
        h("input", { type: "text", name: "username", autocomplete: "username", value: "dashboard", hidden: true }),
        h(
          "div",
          {},
          h("label", { for: "token" }, "Token of the dashboard"),
          h("input", {
            id: "token",
            name: "token",
            type: "password",
            autocomplete: "current-password",
            required: true,
            "aria-describedby": "token-note",
            "aria-invalid": state.refusal ? "true" : undefined,
          }),
        ),
        state.refusal && h("p", { class: "wrong", role: "alert" }, sentence(state.refusal)),
        h("button", { class: "strong", type: "submit" }, "Log in"),
        h(
          "p",
          { class: "muted small", id: "token-note" },
          "It is in the file that ",
          h("code", {}, "ui.token_file"),
          " names on the gateway. It is not the admin token.",
        ),
      ),
    ),
  );
}
