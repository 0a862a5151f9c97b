// Colours: the system's, or those that were chosen here.

const KEY = "prefixgate-theme";
const ORDER = ["system", "light", "dark"];

/** "system", "light" or "dark". */
export const theme = () => document.documentElement.dataset.theme ?? "system";

/** The next of the three, kept for the next visit where storage is allowed. */
export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    return; // not kept then
  }
}
