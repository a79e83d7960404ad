"use strict";
// Opens an individual when something leads to it, and lights up its parents and children in the drawing.
(() => {
  function visit() {
    const found = /^#individual-(\d+)$/.exec(location.hash);
    const node = found && document.getElementById(found[0].slice(1));
    if (!node) return;
    node.open = true;
    node.scrollIntoView({ block: "center" });
    node.querySelector("summary").focus({ preventScroll: true });
  }

  function light(id) {
    for (const edge of document.querySelectorAll(".tree path")) {
      edge.classList.toggle("lit", id !== null && (edge.dataset.from === id || edge.dataset.to === id));
    }
  }

  for (const spot of document.querySelectorAll(".tree a")) {
    const id = spot.getAttribute("href").replace("#individual-", "");
    for (const name of ["mouseenter", "focus"]) spot.addEventListener(name, () => light(id));
    for (const name of ["mouseleave", "blur"]) spot.addEventListener(name, () => light(null));
    // the same address again is no change of it
    spot.addEventListener("click", () => setTimeout(visit));
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-open], [data-close]");
    if (!button) return;
    for (const node of document.querySelectorAll(button.dataset.open || button.dataset.close)) node.open = "open" in button.dataset;
  });
  addEventListener("hashchange", visit);
  visit();
})();
