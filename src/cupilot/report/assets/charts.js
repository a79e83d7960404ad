"use strict";
// Draws every chart of the page in the page's own colours, and makes its dots reachable by keyboard.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const [ink, faint, line, accent, good, bad, warm] = ["ink", "faint", "line", "accent", "good", "bad", "warm"].map(colour);
    const font = getComputedStyle(document.body).fontFamily;
    return {
      background: "transparent",
      font,
      view: { stroke: line },
      axis: {
        labelColor: ink, titleColor: ink, gridColor: line, domainColor: faint, tickColor: faint,
        labelFontSize: 11, titleFontSize: 12, titleFontWeight: "normal", gridOpacity: 0.6,
      },
      legend: { labelColor: ink, titleColor: ink, labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal", symbolSize: 70 },
      range: {
        ramp: { scheme: "viridis", extent: dark.matches ? [0.25, 1] : [0, 0.82] },
        category: [accent, warm, good, faint],
      },
      style: {
        roof: { color: ink, strokeWidth: 1.75 },
        ridge: { color: faint },
        reference: { color: faint },
        best: { color: faint, strokeWidth: 1.75 },
        zone: { color: faint, fontSize: 11, fontStyle: "italic" },
        note: { color: faint, fontSize: 11 },
        named: { color: ink, fontSize: 11, fontWeight: "bold" },
        dot: { stroke: colour("paper"), strokeWidth: 1, cursor: "pointer" },
        failed: { color: bad, strokeWidth: 1.75, cursor: "pointer" },
      },
    };
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
