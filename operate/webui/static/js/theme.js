// Runs before anything is drawn: a theme that was chosen before, or the system's.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("softib-theme");
  } catch {
    /* storage may be off */
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
