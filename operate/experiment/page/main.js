// The data is a block of the page: nothing is asked for.

const reports = JSON.parse(document.getElementById("data").textContent).map(whole);
document
  .getElementById("page")
  .replaceChildren(...(reports.length > 1 ? comparePage(reports) : reportPage(reports[0])).filter(Boolean));
document.body.append(tip.element);
addEventListener("scroll", () => tip.hide(), { passive: true });
