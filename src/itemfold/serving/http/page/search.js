// The search: a combobox of items, for mouse and keyboard.

import * as api from "./api.js";
import {$, element} from "./elements.js";
import {genresOf, named} from "./titles.js";

let timer = 0;
let latest = 0; // only the latest response is shown
let pending = null; // the search in progress
let selected = -1; // index in the results

const options = () => [...$("found").querySelectorAll("[role=option]")];

function close() {
  $("found").hidden = true;
  $("search").setAttribute("aria-expanded", "false");
  $("search").removeAttribute("aria-activedescendant");
  selected = -1;
}

async function search(choose) {
  const mine = ++latest;
  const text = $("search").value.trim();
  $("search-note").textContent = "";
  if (!text) return close();
  try {
    const items = await api.items(text, 8);
    if (mine !== latest) return;
    const rows = items.map((entry, place) => {
      const row = element("li", {role: "option", id: `option-${place}`, ariaSelected: "false"}, named(entry));
      if (entry.genres) row.append(" ", element("small", {}, genresOf(entry).join(", ")));
      if (entry.is_new) row.append(" ", element("span", {className: "mark"}, "new"));
      row.onmousedown = (event) => { event.preventDefault(); pick(entry, choose); };
      row.entry = entry;
      return row;
    });
    selected = -1;
    $("found").replaceChildren(...rows);
    $("found").hidden = !rows.length;
    $("search").setAttribute("aria-expanded", String(rows.length > 0));
    $("search-note").textContent = rows.length ? "" : `No results for “${text}”.`;
  } catch (error) {
    if (mine === latest) { close(); $("search-note").textContent = error.message; }
  }
}

function pick(entry, choose) {
  ++latest;
  $("search").value = "";
  close();
  choose(entry);
}

function move(by) {
  const rows = options();
  if (!rows.length || $("found").hidden) return;
  selected = selected < 0 && by < 0 ? rows.length - 1 : (selected + by + rows.length) % rows.length;
  rows.forEach((row, place) => { row.ariaSelected = String(place === selected); });
  rows[selected].scrollIntoView({block: "nearest"});
  $("search").setAttribute("aria-activedescendant", rows[selected].id);
}

// Enter before the results arrive searches at once and picks the first item.
async function enter(choose) {
  if (selected < 0) {
    if (timer) { clearTimeout(timer); timer = 0; pending = search(choose); }
    await pending;
  }
  const rows = options();
  if (rows.length && !$("found").hidden) pick(rows[Math.max(selected, 0)].entry, choose);
}

export function setUpSearch(choose) {
  $("search").oninput = () => {
    clearTimeout(timer);
    timer = setTimeout(() => { timer = 0; pending = search(choose); }, 120);
  };
  $("search").onblur = close;
  $("search").onkeydown = (event) => {
    if (event.key === "ArrowDown") { event.preventDefault(); move(1); }
    if (event.key === "ArrowUp") { event.preventDefault(); move(-1); }
    if (event.key === "Escape") close();
    if (event.key === "Enter") { event.preventDefault(); enter(choose); }
  };
}
