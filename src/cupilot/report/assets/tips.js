"use strict";
// The tooltip: pairs of name and value beside the pointer or the focused dot.  Text only, never markup.
const tips = (() => {
  const tip = document.getElementById("tip");
  let held = null; // the focused dot, which the tooltip stays with when the page moves

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

  function showAt(element, value) {
    const box = element.getBoundingClientRect();
    show(value, box.right, box.bottom);
    held = () => showAt(element, value);
  }

  function hide() {
    tip.hidden = true;
    held = null;
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  addEventListener("scroll", () => (held ? held() : hide()), { passive: true });
  return { show, showAt, hide };
})();
