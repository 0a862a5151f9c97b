// Before anything is drawn: the colours that were chosen last, so that no light page flashes in the dark.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("prefixgate-theme");
  } catch {
    chosen = null; // storage may be forbidden: the system's colours then
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
