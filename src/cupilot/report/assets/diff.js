"use strict";
// Two kernels side by side, each line with its share of the cost.
(() => {
  const view = document.getElementById("diff-view");
  if (!view) return;
  const data = JSON.parse(document.getElementById("sources").textContent);
  const kernels = new Map(data.kernels.map((kernel) => [String(kernel.id), kernel]));
  const [left, right, all] = ["left", "right", "all"].map((name) => document.getElementById(`diff-${name}`));
  const narrow = matchMedia("(max-width: 46rem)"); // as in the style sheet
  const LEAST = 0.0005; // smaller shares would read as nothing
  const HOT = 0.05; // equal lines that cost this much are shown as well
  const AROUND = 3; // equal lines that are shown around a difference
  const MOST = 4e6; // cells of the table that finds common lines; beyond it everything counts as changed

  // Pairs [line of a or -1, line of b or -1] by the longest common subsequence.
  function align(a, b) {
    let start = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) start++;
    let end = 0;
    while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
    const pairs = [];
    for (let i = 0; i < start; i++) pairs.push([i, i]);
    pairs.push(...middle(a.slice(start, a.length - end), b.slice(start, b.length - end), start));
    for (let i = end; i > 0; i--) pairs.push([a.length - i, b.length - i]);
    return pairs;
  }

  function middle(a, b, offset) {
    const pairs = [];
    if (a.length * b.length > MOST) {
      a.forEach((_, i) => pairs.push([i + offset, -1]));
      b.forEach((_, j) => pairs.push([-1, j + offset]));
      return pairs;
    }
    const width = b.length + 1;
    const table = new Uint32Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i--) {
      for (let j = b.length - 1; j >= 0; j--) {
        table[i * width + j] = a[i] === b[j]
          ? table[(i + 1) * width + j + 1] + 1
          : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
      }
    }
    let [i, j] = [0, 0];
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && a[i] === b[j]) pairs.push([offset + i++, offset + j++]);
      else if (j >= b.length || (i < a.length && table[(i + 1) * width + j] >= table[i * width + j + 1])) pairs.push([offset + i++, -1]);
      else pairs.push([-1, offset + j++]);
    }
    return pairs;
  }

  // What was removed beside what came in its place; above it where there is only one column.
  function rows(pairs) {
    const found = [];
    for (let n = 0; n < pairs.length; ) {
      if (pairs[n][0] >= 0 && pairs[n][1] >= 0) {
        found.push(pairs[n++]);
        continue;
      }
      const gone = [];
      const come = [];
      for (; n < pairs.length && (pairs[n][0] < 0 || pairs[n][1] < 0); n++) {
        if (pairs[n][0] >= 0) gone.push(pairs[n][0]);
        else come.push(pairs[n][1]);
      }
      if (narrow.matches) found.push(...gone.map((i) => [i, -1, true]), ...come.map((j) => [-1, j, true]));
      else for (let k = 0; k < Math.max(gone.length, come.length); k++) found.push([gone[k] ?? -1, come[k] ?? -1, true]);
    }
    return found;
  }

  // Characters that would change how a line reads are shown as their numbers.
  const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g,
    (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

  function cell(kind, text, name) {
    const made = document.createElement("div");
    made.className = `${kind} ${name}`;
    made.setAttribute("role", "cell");
    made.textContent = text;
    return made;
  }

  function half(kernel, costs, line, side, changed) {
    const state = line < 0 ? "none" : changed ? (side === "l" ? "removed" : "added") : "";
    const share = costs.get(line + 1) >= LEAST ? costs.get(line + 1) : 0;
    const cost = cell(`${side} ${state}`, share ? percent(share) : "", "cost");
    if (share) cost.style.backgroundColor = `rgba(var(--heat), ${(0.08 + 0.72 * Math.sqrt(Math.min(share, 1))).toFixed(3)})`;
    const text = line < 0 ? "" : visible(data.lines[kernel.lines[line]]);
    return [cell(`${side} ${state}`, line < 0 ? "" : line + 1, "no"), cost, cell(`${side} ${state}`, text, "text")];
  }

  const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

  function row(cells, name) {
    const made = document.createElement("div");
    made.className = `row ${name}`;
    made.setAttribute("role", "row");
    made.append(...cells);
    return made;
  }

  function gap(hidden, sums) {
    const made = document.createElement("div");
    made.className = "gap";
    const button = document.createElement("button");
    button.type = "button";
    const shares = Math.max(...sums) >= LEAST ? `, ${sums.map(percent).join(" and ")} of the cost` : "";
    button.textContent = `… ${hidden.length} equal lines${shares}`;
    button.addEventListener("click", () => {
      made.replaceWith(...hidden);
    });
    made.append(button);
    return made;
  }

  function title(select) {
    return select.options[select.selectedIndex].textContent;
  }

  function show() {
    const [a, b] = [kernels.get(left.value), kernels.get(right.value)];
    const [costsA, costsB] = [new Map(a.costs), new Map(b.costs)];
    const pairs = rows(align(a.lines, b.lines));
    const made = pairs.map(([i, j, changed]) =>
      row([...half(a, costsA, i, "l", changed), ...half(b, costsB, j, "r", changed)], changed ? "other" : "same"));
    const cost = ([i, j]) => [costsA.get(i + 1) || 0, costsB.get(j + 1) || 0];
    const near = pairs.map((pair, n) => all.checked || Math.max(...cost(pair)) >= HOT
      || pairs.slice(Math.max(0, n - AROUND), n + AROUND + 1).some((other) => other[2]));
    const head = row(
      [["l", "no"], ["l", "cost"], ["l", "text"], ["r", "no"], ["r", "cost"], ["r", "text"]].map(([side, name]) => {
        const text = name === "no" ? "line" : name === "cost" ? "cost" : title(side === "l" ? left : right);
        const found = cell(side, text, name);
        found.setAttribute("role", "columnheader");
        return found;
      }), "head");
    const parts = [head];
    for (let n = 0; n < made.length; ) {
      if (near[n]) {
        parts.push(made[n++]);
        continue;
      }
      const hidden = [];
      const sums = [0, 0];
      for (; n < made.length && !near[n]; n++) {
        hidden.push(made[n]);
        cost(pairs[n]).forEach((share, side) => (sums[side] += share));
      }
      parts.push(...(hidden.length > 1 ? [gap(hidden, sums)] : hidden));
    }
    view.replaceChildren(...parts);
    const changed = pairs.filter((pair) => pair[2]);
    const state = changed.length
      ? `${changed.filter((pair) => pair[0] >= 0).length} lines gone, ${changed.filter((pair) => pair[1] >= 0).length} come.`
      : "The two are the same.";
    document.getElementById("diff-state").textContent = state;
    const bases = [...new Set([a.basis, b.basis])].filter(Boolean);
    document.getElementById("diff-basis").textContent = bases.length ? `by ${bases.join(" and ")}` : "not known for these two";
  }

  for (const control of [left, right, all, narrow]) control.addEventListener("change", show);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-left]");
    if (!button || !kernels.has(button.dataset.left) || !kernels.has(button.dataset.right)) return;
    left.value = button.dataset.left;
    right.value = button.dataset.right;
    show();
    document.getElementById("diff").scrollIntoView();
    left.focus({ preventScroll: true });
  });
  show();
})();
