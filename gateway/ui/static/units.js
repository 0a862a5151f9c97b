// Numbers with units, for people. What is unknown (null) is never a number: `known` says so for all of them.

/** What stands where nothing is known. */
export const UNKNOWN = "unknown";

const SPACE = "\u00a0"; // a number and its unit stay on one line

const known =
  (write) =>
  (value, ...rest) =>
    value === null || value === undefined || Number.isNaN(value) ? UNKNOWN : write(value, ...rest);
const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

function digits(value) {
  // three that count, as far as there are decimals
  const size = Math.abs(value);
  if (size >= 1000) return grouped.format(value);
  return value.toFixed(size >= 100 || Number.isInteger(size) ? 0 : size >= 10 ? 1 : 2);
}

/** 1234567 -> "1,234,567" */
export const count = known((value) => grouped.format(value));

/** 1234567 -> "1.23 M": where there is little room. */
export const short = known((value) => {
  for (const [size, sign] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e4, "k"],
  ]) {
    if (Math.abs(value) >= size) return `${digits(value / (sign === "k" ? 1e3 : size))}${SPACE}${sign}`;
  }
  return Number.isInteger(value) ? grouped.format(value) : digits(value);
});

/** 0.5 -> "50.0 %" */
export const share = known((value) => `${(value * 100).toFixed(1)}${SPACE}%`);

/** Seconds: 0.0123 -> "12.3 ms", 3700 -> "1 h 1 min" */
export const seconds = known((value) => {
  const size = Math.abs(value);
  if (size === 0) return `0${SPACE}s`;
  if (size < 9.995e-4) return `${digits(value * 1e6)}${SPACE}µs`;
  if (size < 0.9995) return `${digits(value * 1e3)}${SPACE}ms`;
  if (size < 90) return `${digits(value)}${SPACE}s`;
  if (size < 3600) return `${Math.floor(size / 60)}${SPACE}min${SPACE}${Math.floor(size % 60)}${SPACE}s`;
  if (size < 86400) return `${Math.floor(size / 3600)}${SPACE}h${SPACE}${Math.floor((size % 3600) / 60)}${SPACE}min`;
  return `${Math.floor(size / 86400)}${SPACE}d${SPACE}${Math.floor((size % 86400) / 3600)}${SPACE}h`;
});

/** Seconds that already went by: 12 -> "12 s ago" */
export const ago = known((value) => (value < 1 ? "just now" : `${seconds(Math.floor(value))}${SPACE}ago`));

/** Tokens a second: 12345 -> "12.3 k tok/s" */
export const rate = known((value) => `${short(value)}${SPACE}tok/s`);

const DIGITS = 12; // behind the point, of exact amounts

/** An exact amount as the server has it, rounded half to even for reading: "12.345000000000", "USD" -> "12.34 USD".
 * By integers, never a float. Amounts below one unit keep three digits that count, six decimals at most. */
export const money = known((amount, currency) => {
  const [, sign, whole, rest = ""] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(amount) ?? [];
  if (whole === undefined) return UNKNOWN;
  const exact = BigInt(whole + rest.padEnd(DIGITS, "0").slice(0, DIGITS));
  const zeros = /^0*/.exec(rest)[0].length;
  const places = /^0+$/.test(whole) && exact !== 0n ? Math.min(6, Math.max(2, zeros + 3)) : 2;
  const unit = 10n ** BigInt(DIGITS - places);
  let [rounded, left] = [exact / unit, exact % unit];
  if (left * 2n > unit || (left * 2n === unit && rounded % 2n === 1n)) rounded += 1n;
  const least = rounded === 0n && exact !== 0n;
  const text = String(least ? 1n : rounded).padStart(places + 1, "0");
  const written = `${grouped.format(BigInt(text.slice(0, -places)))}.${text.slice(-places)}`;
  return `${least ? "< " : ""}${sign}${written}${SPACE}${currency ?? ""}`.trim();
});

/** A moment, here: of today "14:05:09", of another day "2026-11-30 14:05:09". */
export const clock = known((text) => {
  const at = new Date(text);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString("sv-SE")} ${time}`;
});

/** A sentence out of what stands without its capital and its full stop. */
export const sentence = known(
  (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`,
);

/** "1 endpoint", "2 endpoints" */
export const many = (value, noun) => `${grouped.format(value)} ${noun}${value === 1 ? "" : "s"}`;
