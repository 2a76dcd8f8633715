// The page: choose items, see recommendations, compare models. The URL holds the whole state.

import * as api from "./api.js";
import {$, button, element, genresOf, named, picture, setImageHosts} from "./elements.js";
import {showLists, showLoading} from "./lists.js";
import {setUpSearch} from "./search.js";
import {address, isEmpty, readAddress, request, reset, same, state} from "./state.js";

const SLIDERS = ["diversity", "discount"];
const SHELVES = 3; // genres with a shelf
const isWide = matchMedia("(min-width: 48rem)").matches;
const CHIPS = isWide ? 8 : 3; // items of a known user that are shown one by one
const runs = new Map(); // name → response of /about
let latest = 0; // only the latest response is shown

const main = () => runs.values().next().value;
const titleOf = (run) => (runs.size > 1 ? [...new Set([run, runs.get(run).model])].join(" · ") : "");

function note(text, isError = false) {
  $("note").textContent = text;
  $("note").className = isError ? "wrong" : "";
}

function heading() {
  if (state.similar) return `Similar to ${named(state.similar)}`;
  if (state.user !== null) return state.liked.length ? `For user ${state.user}, with your choices` : `For user ${state.user}`;
  return state.liked.length ? "Recommended for you" : "Popular now";
}

function fail(error) {
  $("lists").replaceChildren();
  $("legend").hidden = true;
  note(error.message, true);
  $("key").hidden = error.status !== 401;
}

// --- lists -----------------------------------------------------------------------------------

async function column(run) {
  const title = titleOf(run);
  if (state.similar) {
    const picks = await api.similar(state.similar.item, Number(state.k), run);
    return {title, picks, measure: "similarity", ofUser: false, fallback: "", unknown: []};
  }
  const asked = request(run, runs.get(run).explains);
  const found = await api.recommend(asked);
  const measure = found.fallback ? "users" : "score";
  return {title, picks: found.items, measure, ofUser: "user" in asked, fallback: found.fallback, unknown: found.unknown};
}

// Show the state; `focus` returns the element to focus afterwards.
async function show(focus = null) {
  draw();
  const mine = ++latest;
  $("heading").textContent = heading();
  $("back").hidden = !state.similar;
  showLoading();
  try {
    const names = [state.run || main().run, ...(state.other ? [state.other] : [])];
    const columns = await Promise.all(names.map(column));
    if (mine !== latest) return;
    note(remarks(columns));
    showLists(columns, actions);
  } catch (error) {
    if (mine === latest) fail(error);
  }
  if (mine !== latest) return;
  $("results").ariaBusy = "false";
  (focus?.() ?? null)?.focus();
}

function remarks(columns) {
  const notes = [];
  const {fallback, picks, unknown} = columns[0];
  if (isEmpty() && !state.similar) notes.push("Search for something you like, or pick it from a shelf.");
  else if (fallback) notes.push("The model knows none of these items, so these are the most popular ones.");
  const fresh = state.liked.filter((entry) => entry.is_new);
  if (fresh.length && !state.similar) notes.push(`New items do not change your list yet: ${fresh.map(named).join(", ")}.`);
  const others = unknown.filter((item) => !fresh.some((entry) => same(entry, {item})));
  if (others.length) notes.push(`Unknown to this model and ignored: ${others.join(", ")}.`);
  if (!picks.length) notes.push(state.similar ? "No similar items found." : "No items left to recommend.");
  return notes.join(" ");
}

function change(focus = null) {
  const there = address();
  if (there !== (location.search || location.pathname)) window.history.pushState(null, "", there);
  show(focus);
}

// --- choices ---------------------------------------------------------------------------------

const without = (list, entry) => list.filter((other) => !same(other, entry));
const sameButton = (place, label) => () => {
  const rows = [...document.querySelectorAll(".column:first-child .pick")];
  return rows[Math.min(place, rows.length - 1)]?.querySelector(`button[aria-label^="${label}"]`) ?? $("heading");
};

function sendFeedback(event, entry) {
  if (main().feedback) api.feedback(event, entry.item, state.user, state.run || main().run).catch(() => {});
}

function choose(entry) {
  state.similar = null;
  state.disliked = without(state.disliked, entry);
  if (![...state.liked, ...state.userHistory].some((known) => same(known, entry))) state.liked = [...state.liked, entry];
}

const actions = {
  like(entry, place) { sendFeedback("liked", entry); choose(entry); change(sameButton(place, "Like")); },
  dislike(entry, place) {
    sendFeedback("disliked", entry);
    state.liked = without(state.liked, entry);
    state.disliked = [...without(state.disliked, entry), entry];
    change(sameButton(place, "Dislike"));
  },
  similar(entry) { state.similar = entry; change(() => $("heading")); },
};

function chip(entry, name, remove) {
  const row = element("li", {className: name});
  const prefix = name === "disliked" ? "not " : "";
  row.append(element("span", {}, `${prefix}${named(entry)}`));
  if (remove) row.append(button("×", `Remove ${named(entry)}`, remove));
  return row;
}

function draw() {
  const removing = (list, entry) => () => { state[list] = without(state[list], entry); change(() => $("search")); };
  const known = state.userHistory.slice(0, CHIPS).map((entry) => chip(entry, "known", null));
  const more = state.userHistory.length - CHIPS;
  if (more > 0) known.push(element("li", {className: "known"}, `and ${more.toLocaleString("en")} more`));
  if (state.userHistory.length) known.unshift(element("li", {className: "who"}, `User ${state.user}:`));
  const chips = ["liked", "disliked"].flatMap((list) => state[list].map((entry) => chip(entry, list, removing(list, entry))));
  $("chosen").replaceChildren(...known, ...chips);
  $("user").value = state.user ?? "";
  $("genre").value = state.genre;
  $("k").value = state.k;
  for (const id of SLIDERS) drawSlider(id);
  $("run").value = state.run || main().run;
  $("with").value = state.other;
  hideShelves();
}

// Similar items are not re-ranked, so their sliders are disabled.
function drawSlider(id) {
  $(id).value = state[id];
  $(id).disabled = Boolean(state.similar);
  $(`${id}-text`).textContent = state[id] === "0" ? "off" : `${Math.round(100 * Number(state[id]))} %`;
}

// The list follows a moving slider; the URL changes when it is released.
function setUpSlider(id) {
  let timer = 0;
  $(id).oninput = () => {
    state[id] = $(id).value;
    drawSlider(id);
    clearTimeout(timer);
    timer = setTimeout(() => show(), 120);
  };
  $(id).onchange = () => { clearTimeout(timer); state[id] = $(id).value; change(); };
}

// --- shelves and options ---------------------------------------------------------------------

function hideShelves() {
  $("shelves").hidden = !isEmpty() || Boolean(state.similar) || !$("shelves").children.length;
}

// A card of a known item likes it; a card of a new item shows similar ones.
function shelf(title, entries) {
  const cards = entries.map((entry) => {
    const label = `${entry.is_new ? "Items similar to" : "Like"} ${named(entry)}`;
    const card = button("", label, () => (entry.is_new ? actions.similar(entry) : actions.like(entry, 0)), "card");
    card.append(...picture(entry), element("span", {className: "name"}, named(entry)), element("small", {}, genresOf(entry)));
    return element("li", {}, card);
  });
  return element("div", {className: "shelf"}, element("h2", {}, title), element("ul", {ariaLabel: title}, ...cards));
}

async function drawShelves() {
  const counts = new Map();
  const popular = await api.items("", 100).catch(() => []);
  for (const genre of popular.flatMap((entry) => (entry.genres || "").split("|").filter(Boolean))) {
    counts.set(genre, (counts.get(genre) ?? 0) + 1);
  }
  const genres = [...counts].sort((a, b) => b[1] - a[1]).slice(0, SHELVES).map(([genre]) => genre);
  const filled = await Promise.all(genres.map((genre) => api.items("", 12, {genre}).catch(() => [])));
  const made = filled.map((entries, place) => shelf(genres[place], entries));
  if (main().new_items) made.push(shelf("New", await api.items("", 12, {new: true}).catch(() => [])));
  $("shelves").replaceChildren(...made);
  hideShelves(); // redraw nothing else: the user may be typing
}

async function historyOf(user) {
  try {
    return await api.history(user);
  } catch (error) {
    if (error.status === 404) return []; // the list reports the unknown user
    throw error;
  }
}

function setUp() {
  setUpSearch((entry) => { sendFeedback("liked", entry); choose(entry); change(() => $("search")); });
  $("known").onsubmit = async (event) => {
    event.preventDefault();
    const user = $("user").value.trim() || null;
    try {
      const userHistory = user === null ? [] : await historyOf(user);
      Object.assign(state, {user, userHistory, liked: [], disliked: [], similar: null});
      change(() => $("heading"));
    } catch (error) {
      fail(error);
    }
  };
  for (const [id, name] of [["genre", "genre"], ["k", "k"], ["run", "run"], ["with", "other"]]) {
    $(id).onchange = () => { state[name] = $(id).value; change(); };
  }
  SLIDERS.forEach(setUpSlider);
  $("clear").onclick = () => { reset(); change(() => $("search")); };
  $("back").onclick = () => { state.similar = null; change(() => $("heading")); };
  $("key").onsubmit = (event) => { event.preventDefault(); api.setKey($("key-text").value.trim()); start(); };
  window.onpopstate = () => follow().then(() => show(), fail);
  $("options").open = isWide; // on a phone the list comes first
}

// Read the state from the URL; values that the service does not offer are dropped.
async function follow() {
  await readAddress(api.item, historyOf);
  if (!runs.has(state.run)) state.run = "";
  if (!runs.has(state.other)) state.other = "";
  if (!main().genres.includes(state.genre)) state.genre = "";
  if (!["5", "10", "20", "50"].includes(state.k)) {
    const wanted = Math.min(100, Math.max(1, Math.round(Number(state.k)) || 10));
    state.k = String(wanted);
    $("k").append(element("option", {}, state.k));
  }
}

// --- start -----------------------------------------------------------------------------------

async function start() {
  note("");
  showLoading();
  try {
    const first = await api.about();
    const others = first.runs.filter((name) => name !== first.run);
    for (const found of [first, ...await Promise.all(others.map(api.about))]) runs.set(found.run, found);
    $("key").hidden = true;
    setImageHosts(first.image_hosts);
    const count = (number, noun) => `${number.toLocaleString("en")} ${noun}`;
    const itemsText = ({items, new_items: fresh}) => count(items, "items") + (fresh ? ` (${fresh.toLocaleString("en")} new)` : "");
    $("about").textContent = [first.model, first.data, itemsText(first), count(first.users, "users")].join("\u00a0· ");
    $("genre-field").hidden = !first.genres.length;
    $("genre").replaceChildren($("genre").options[0], ...first.genres.map((name) => element("option", {}, name)));
    for (const field of document.querySelectorAll(".runs")) field.hidden = first.runs.length < 2;
    $("run").replaceChildren(...first.runs.map((name) => element("option", {}, name)));
    $("with").replaceChildren($("with").options[0], ...first.runs.map((name) => element("option", {}, name)));
    await follow();
  } catch (error) {
    $("heading").textContent = "Recommendations";
    $("results").ariaBusy = "false";
    fail(error);
    return;
  }
  drawShelves();
  show();
}

setUp();
start();
