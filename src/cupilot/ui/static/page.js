"use strict";

// Keeps a page up to date with the server's events.  The server sends finished HTML, in which it has escaped
// everything; here it is only put in place, without losing focus, ticks or the report's position.

const main = document.getElementById("main");
const line = document.getElementById("line");

function parsed(html, inside) {
  const holder = document.createElement(inside);
  holder.innerHTML = html;
  return holder;
}

function keepingFocus(change) {
  const held = document.activeElement;
  const key = held && (held.id ? "#" + CSS.escape(held.id) : held.getAttribute("href") && `[href="${CSS.escape(held.getAttribute("href"))}"]`);
  const value = held && held.name === "run" ? held.value : null;
  change();
  if (!held || document.activeElement === held) return;
  const again = value !== null
    ? [...document.getElementsByName("run")].find((one) => one.value === value)
    : key && main.querySelector(key);
  if (held.isConnected || again) (held.isConnected ? held : again).focus({ preventScroll: true });
}

function showRows(data) {
  const body = document.getElementById("rows");
  const ticked = new Set([...body.querySelectorAll("input:checked")].map((box) => box.value));
  const old = new Map([...body.children].map((row) => [row.dataset.run, row]));
  const fresh = [...parsed(data.html, "tbody").children];
  keepingFocus(() => {
    body.replaceChildren(...fresh.map((row) => {
      const before = old.get(row.dataset.run);
      if (before && before.dataset.fingerprint === row.dataset.fingerprint) return before;
      if (before) row.classList.add("fresh");
      const box = row.querySelector("input");
      if (box) box.checked = ticked.has(box.value);
      return row;
    }));
    document.getElementById("suites").replaceChildren(...parsed(data.suites, "section").childNodes);
  });
}

let shown = Number(main.dataset.count || 0);
let told = "";

function showHeader(data) {
  if (!data.html) return;
  const open = [...document.querySelectorAll("#header details[open]")].map((one) => one.id);
  keepingFocus(() => document.getElementById("header").replaceChildren(...parsed(data.html, "section").childNodes));
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (data.say !== told) document.getElementById("announce").textContent = told = data.say;
  const more = data.count - shown;
  const follow = document.getElementById("follow");
  document.getElementById("follow-label").hidden = !data.running;
  if (more > 0 && (follow.checked || shown === 0)) return refresh(data.count);
  document.getElementById("refresh").hidden = more <= 0;
  document.getElementById("older").hidden = more <= 0;
  document.getElementById("older").textContent = more === 1 ? `1 ${main.dataset.what} is newer` : `${more} ${main.dataset.what}s are newer`;
  document.getElementById("refresh").dataset.count = data.count;
}

function refresh(count) {
  const frame = document.getElementById("report");
  shown = count;
  document.getElementById("refresh").hidden = document.getElementById("older").hidden = true;
  frame.src = frame.getAttribute("src");
}

const SHOW = { runs: showRows, run: showHeader };

function watch() {
  const name = main.dataset.event;
  const source = new EventSource(main.dataset.events);
  source.addEventListener(name, (event) => {
    SHOW[name](JSON.parse(event.data));
    main.dataset.live = "yes";
    showAges();
  });
  source.addEventListener("open", () => { line.hidden = true; });
  source.addEventListener("error", () => {
    line.textContent = "The server does not answer; what is shown may be old. Trying again.";
    line.hidden = false;
  });
  window.addEventListener("pagehide", () => source.close());
}

function ago(seconds) {
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit} ago`;
  }
  return "just now";
}

function showAges() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    time.textContent = ago((Date.now() - Date.parse(time.dateTime)) / 1000);
    time.title = new Date(time.dateTime).toLocaleString();
  }
}

function pickTask(form) {
  const pick = document.getElementById("pick");
  pick.hidden = false;
  pick.querySelector("input").addEventListener("change", async (event) => {
    const file = event.target.files[0];
    if (!file) return;
    form.elements.text.value = await file.text();
    form.elements.source.value = "text";
    form.elements.name.value = file.name.replace(/\.py$/, "").replace(/[^A-Za-z0-9_-]/g, "-").replace(/^[^A-Za-z]+/, "") || "task";
  });
  for (const name of ["file", "text", "name"]) {
    form.elements[name].addEventListener("input", () => { form.elements.source.value = name === "file" ? "file" : "text"; });
  }
}

if (main.dataset.events) watch();
const button = document.getElementById("refresh");
if (button) button.addEventListener("click", () => refresh(Number(button.dataset.count)));
const form = document.getElementById("new");
if (form) pickTask(form);
showAges();
setInterval(showAges, 30000);
