"use strict";
// Draws every chart of the page in the page's own colours, and makes its dots reachable by keyboard.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const colour = (key, value) => (/^--/.test(value) ? style.getPropertyValue(value).trim() : value);
    const look = JSON.parse(document.getElementById("chart-theme").textContent, colour);
    if (dark.matches) look.range.ramp.extent = [0.25, 1];
    return { ...look, background: "transparent", font: getComputedStyle(document.body).fontFamily };
  }

  function tooltip(handler, event, item, value) {
    if (value === null || value === undefined || value === "") tips.hide();
    else tips.show(value, event.clientX, event.clientY);
  }

  function makeReachable(plot) {
    for (const dot of plot.querySelectorAll("path[role='graphics-symbol']")) {
      const item = dot.__data__;
      if (!item || !item.tooltip || dot.hasAttribute("tabindex")) continue;
      dot.setAttribute("tabindex", "0");
      dot.addEventListener("focus", () => tips.showAt(dot, item.tooltip));
      dot.addEventListener("blur", tips.hide);
      dot.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          visit(item);
        }
      });
    }
  }

  function visit(item) {
    const id = item && item.datum && item.datum.id;
    if (id !== undefined) location.hash = `individual-${id}`;
  }

  async function draw(plot) {
    const spec = JSON.parse(document.getElementById(plot.dataset.spec).textContent);
    const result = await vegaEmbed(plot, spec, {
      actions: false, renderer: "svg", ast: true, config: theme(), tooltip, defaultStyle: false,
    });
    result.view.addEventListener("click", (event, item) => visit(item));
    const again = () => makeReachable(plot);
    new MutationObserver(again).observe(plot, { childList: true, subtree: true });
    again();
    return result;
  }

  async function drawAll() {
    for (const plot of document.querySelectorAll(".plot")) {
      try {
        if (plot.drawn) plot.drawn.finalize();
        plot.drawn = await draw(plot);
      } catch (error) {
        plot.textContent = `The chart cannot be drawn: ${error.message}`;
        console.error(error);
      }
    }
    document.documentElement.dataset.drawn = "yes";
  }

  dark.addEventListener("change", drawAll);
  drawAll();
})();
