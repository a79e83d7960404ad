"use strict";
// The tooltip: pairs of name and value beside the pointer or the focused dot.  Text only, never markup.
const tips = (() => {
  const tip = document.getElementById("tip");

  function show(value, x, y) {
    const list = document.createElement("dl");
    for (const [name, text] of Object.entries(value)) {
      if (text === "" || text === null || text === undefined) continue;
      list.append(Object.assign(document.createElement("dt"), { textContent: name }));
      list.append(Object.assign(document.createElement("dd"), { textContent: String(text) }));
    }
    tip.replaceChildren(list);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
    const top = y + 14 + box.height > innerHeight ? y - 14 - box.height : y + 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  }

  function hide() {
    tip.hidden = true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  addEventListener("scroll", hide, { passive: true });
  return { show, hide };
})();
