// Shelves of tiles: popular items to choose from. No item is on two shelves.

import {cover} from "./covers.js";
import {$, element, toolbar} from "./elements.js";
import {genresOf, named} from "./titles.js";

const LONGEST = 12; // tiles on a shelf
const SHORTEST = 4;
const SHELVES = 3; // of genres
const ALONE = 24; // tiles on the only shelf

// The popular items as [{title, entries}]: the most popular first, then the rest by genre.
export function arrange(popular) {
  if (!popular.some((entry) => entry.genres)) return [{title: "Popular", entries: popular.slice(0, ALONE)}];
  const shelves = [{title: "Popular", entries: popular.slice(0, LONGEST)}];
  let rest = popular.slice(LONGEST);
  while (shelves.length <= SHELVES) {
    const counts = new Map();
    for (const genre of rest.flatMap(genresOf)) counts.set(genre, (counts.get(genre) ?? 0) + 1);
    for (const {title} of shelves) counts.delete(title);
    const [genre, count] = [...counts].reduce((best, next) => (next[1] > best[1] ? next : best), ["", 0]);
    if (count < SHORTEST) break;
    const entries = rest.filter((entry) => genresOf(entry).includes(genre)).slice(0, LONGEST);
    shelves.push({title: genre, entries});
    rest = rest.filter((entry) => !entries.includes(entry));
  }
  return shelves;
}

// A tile of a known item likes it, or takes the like back; a tile of a new item shows similar ones.
function tile(entry, actions) {
  const made = element("button", {type: "button", className: "tile", title: named(entry)}, cover(entry));
  made.dataset.item = entry.item;
  if (entry.is_new) {
    made.append(element("span", {className: "mark"}, "new"));
    made.onclick = () => actions.similar(entry);
  } else {
    made.ariaPressed = "false";
    made.onclick = () => actions.toggle(entry);
  }
  return made;
}

function shelf({title, entries}, actions) {
  const tiles = entries.map((entry) => tile(entry, actions));
  return element("div", {className: "shelf"}, element("h2", {}, title), toolbar(title, "tiles", ...tiles));
}

export function drawShelves(popular, fresh, actions) {
  const shelves = popular.length ? arrange(popular) : [];
  if (fresh.length) shelves.push({title: "New", entries: fresh});
  const [first, ...others] = shelves.map((one) => shelf(one, actions));
  $("starters").replaceChildren(...(first ? [first] : []));
  $("more").replaceChildren(...others);
  $("more").hidden = !others.length;
}

export function markTiles(isLiked) {
  for (const made of document.querySelectorAll(".tile[aria-pressed]")) {
    made.ariaPressed = String(isLiked({item: made.dataset.item}));
  }
}
