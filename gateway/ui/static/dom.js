// Elements described as plain data, and a page brought to agree with them in place.
//
//     h("td", {class: "number"}, "12")  ->  {tag, props, kids, key}      nothing of the page is touched
//     render(place, description)        ->  the elements in `place`      changed where the description changed
//
// What did not change keeps its element, and with it focus, scrolling and selection. All text becomes text nodes: there
// is no way from a string to markup here. Rows that move carry a `key`. Cost: linear in the description.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set([
  "svg",
  "g",
  "path",
  "line",
  "rect",
  "circle",
  "polyline",
  "polygon",
  "defs",
  "pattern",
  "text",
  "title",
]);
const AS_PROPERTIES = new Set(["value", "checked", "open", "hidden"]);

/** Describe an element. Kids are descriptions, strings, numbers, arrays of them; null and false are left out. */
export function h(tag, props, ...kids) {
  const { key, ...rest } = props ?? {};
  return { tag, props: rest, kids: flat(kids, []), key };
}

function flat(kids, into) {
  for (const kid of kids) {
    if (Array.isArray(kid)) flat(kid, into);
    else if (kid !== null && kid !== undefined && kid !== false) into.push(typeof kid === "object" ? kid : String(kid));
  }
  return into;
}

/** Bring what is in `place` to agree with one description or several. */
export function render(place, ...described) {
  changeKids(place, place.described ?? [], (place.described = flat(described, [])), false);
}

function create(described, inSvg) {
  if (typeof described === "string") return document.createTextNode(described);
  const svg = inSvg || described.tag === "svg";
  const node =
    svg && SVG_TAGS.has(described.tag)
      ? document.createElementNS(SVG, described.tag)
      : document.createElement(described.tag);
  for (const [name, value] of Object.entries(described.props)) set(node, name, value, undefined);
  for (const kid of described.kids) node.append(create(kid, svg));
  return node;
}

function set(node, name, value, before) {
  if (name.startsWith("on")) listen(node, name.slice(2).toLowerCase(), value);
  else if (name === "style") restyle(node, value ?? {}, before ?? {});
  else if (AS_PROPERTIES.has(name) && name in node) {
    if (node[name] !== (value ?? "") && value !== before) node[name] = value ?? "";
  } else if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}

function restyle(node, style, before) {
  // through the object model, which a strict policy allows
  for (const name of Object.keys(before)) if (!(name in style)) node.style.removeProperty(name);
  for (const [name, value] of Object.entries(style)) node.style.setProperty(name, value);
}

function listen(node, kind, handler) {
  // one listener for good; what it calls is the newest handler
  node.handlers ??= {};
  if (!(kind in node.handlers)) node.addEventListener(kind, (event) => node.handlers[kind]?.(event));
  node.handlers[kind] = handler;
}

function isSame(before, after) {
  if (typeof before === "string" || typeof after === "string") return typeof before === typeof after;
  return before.tag === after.tag && before.key === after.key;
}

function change(node, before, after, inSvg) {
  if (before === after) return;
  if (typeof after === "string") {
    node.data = after;
    return;
  }
  for (const name of Object.keys(before.props))
    if (!(name in after.props)) set(node, name, undefined, before.props[name]);
  for (const [name, value] of Object.entries(after.props)) {
    if (before.props[name] !== value) set(node, name, value, before.props[name]);
  }
  changeKids(node, before.kids, after.kids, inSvg || after.tag === "svg");
}

function changeKids(node, before, after, inSvg) {
  const nodes = [...node.childNodes];
  const keyed = new Map();
  before.forEach((kid, at) => kid.key !== undefined && keyed.set(kid.key, at));
  const used = new Set();
  let unkeyed = 0;
  const wanted = after.map((kid) => {
    let at = -1;
    if (kid.key !== undefined) at = keyed.get(kid.key) ?? -1;
    else {
      while (unkeyed < before.length && (before[unkeyed].key !== undefined || used.has(unkeyed))) unkeyed += 1;
      if (unkeyed < before.length) at = unkeyed++;
    }
    if (at < 0 || used.has(at) || !isSame(before[at], kid)) return create(kid, inSvg);
    used.add(at);
    change(nodes[at], before[at], kid, inSvg);
    return nodes[at];
  });
  nodes.forEach((old, at) => used.has(at) || old.remove());
  wanted.forEach((one, at) => {
    if (node.childNodes[at] !== one) node.insertBefore(one, node.childNodes[at] ?? null);
  });
}
