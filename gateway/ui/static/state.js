// What the page knows, and who asks for it to be drawn again.
//
//     live.js   --> state.now        snapshot and deltas of the stream
//     polls.js  --> state.pages      JSON pages of the view that is looked at
//     views     --> state.choices    what was chosen in them: period, page, order

/** Decisions kept here, newest first. */
export const MOST_DECISIONS = 500;

export const state = {
  session: null, // null: not logged in
  refusal: null, // why a log-in was refused
  link: "connecting", // "live", "reconnecting", "stale", "full"
  linkWhy: null,
  lastHeard: null, // Date of the last word of the server
  paused: null, // Date
  now: null, // {as_of, live, endpoints: Map, decisions: [], health}
  pages: new Map(), // path -> {data, failure, at}
  choices: new Map(),
  view: "overview",
};

/** What was chosen under a name, or what holds without a choice. */
export const choice = (name, otherwise) => (state.choices.has(name) ? state.choices.get(name) : otherwise);

/** Choose, and draw again. */
export function choose(name, value) {
  state.choices.set(name, value);
  update();
}

let draw = () => undefined;
let isDue = false;
const afterwards = [];

/** Whom to call to draw the page. */
export const drawBy = (how) => (draw = how);

/** Draw soon, once for all who ask until then. `then` runs when it is drawn. */
export function update(then) {
  if (then) afterwards.push(then);
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
    for (const one of afterwards.splice(0)) one();
  });
}

let lastSaid = "";

/** Tell those who listen to the page; only what is new, and never figures that change by the second. */
export function say(text) {
  if (text !== lastSaid) document.getElementById("said").textContent = lastSaid = text;
}
