"use strict";
// Tables that sort by the column whose head is pressed, and are filtered by category and name.
(() => {
  function value(row, column, numeric) {
    const text = row.cells[column].textContent.trim();
    if (!numeric) return text.toLowerCase();
    const number = /\d[\d.]*/.exec(text.replace(/[\u202f\u00a0]/g, "")); // there may be a word before it
    return number ? parseFloat(number[0]) : null;
  }

  function sort(table, column, numeric, down) {
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row) => [value(row, column, numeric), row]);
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // what is not known comes last either way
      return down ? compare(b, a) : compare(a, b);
    });
    body.append(...keyed.map(([, row]) => row));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, head.dataset.kind === "number", down);
      });
    });
  }

  const [category, search, shown] = ["category", "search", "shown"].map((id) => document.getElementById(id));
  const table = document.getElementById("problem-table");
  if (!table) return;
  function filter() {
    let count = 0;
    for (const row of table.tBodies[0].rows) {
      const fits = (!category.value || row.dataset.category === category.value)
        && row.cells[1].textContent.toLowerCase().includes(search.value.trim().toLowerCase());
      row.hidden = !fits;
      count += fits;
    }
    shown.textContent = `${count} of ${table.tBodies[0].rows.length} shown`;
  }
  category.addEventListener("change", filter);
  search.addEventListener("input", filter);
  filter();
})();
