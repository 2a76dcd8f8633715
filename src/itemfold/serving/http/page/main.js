// The page: choose items, see recommendations, compare models. The URL holds the whole state.

import * as api from "./api.js";
import {setUpCovers} from "./covers.js";
import {$, button, element} from "./elements.js";
import {showLists} from "./lists.js";
import {comparable, drawOptions, setUpOptions} from "./options.js";
import {setUpSearch} from "./search.js";
import {drawShelves, markTiles} from "./shelves.js";
import {address, isEmpty, isLiked, readAddress, request, reset, same, state, without} from "./state.js";
import {genresOf, joined, named, shortName} from "./titles.js";

const POPULAR = 72; // items for the shelves: about 7 KB
const CHIPS = matchMedia("(min-width: 60rem)").matches ? 8 : 2; // history items of a user, shown one by one
const SEEN_MS = 1000; // a list that stays this long counts as shown
let abouts = []; // descriptions of the runs, the default first
let popular = []; // the most popular items
let example = []; // the history of a visitor who has not chosen anything
let latest = 0; // only the latest response is shown
let failures = 0; // in a row
let retryTimer = 0;
let shownTimer = 0;
let unsent = []; // lists on the screen that are not yet stored as shown
let sending = Promise.resolve();
let setReady;
const ready = new Promise((resolve) => { setReady = resolve; }); // the service has described itself

const runName = () => state.run || abouts[0].run;

function note(text, isError = false) {
  $("note").textContent = text;
  $("note").className = isError ? "wrong" : "";
}

function heading() {
  if (state.similar) return `Similar to ${named(state.similar)}`;
  if (state.user !== null) return state.liked.length ? `For user ${state.user}, with your choices` : `For user ${state.user}`;
  if (state.liked.length) return "Recommended for you";
  return example.length ? `If you liked ${joined(example.map(shortName))}` : "Popular now";
}

// An error leaves the list as it is; a request that may succeed later is repeated.
function fail(error, again) {
  document.querySelectorAll(".waiting").forEach((made) => made.remove());
  note(error.message, true);
  $("key").hidden = error.status !== 401;
  $("retry").hidden = !error.isPassing;
  $("retry").onclick = () => again();
  $("results").ariaBusy = "false";
  clearTimeout(retryTimer);
  if (error.isPassing) retryTimer = setTimeout(again, 1000 * Math.max(error.wait, Math.min(60, 2 ** ++failures)));
}

// --- lists -----------------------------------------------------------------------------------

async function column(run) {
  const about = abouts.find((one) => one.run === run);
  const title = abouts[0].runs.length > 1 ? [...new Set([run, about.model])].join(" · ") : "";
  if (state.similar) {
    const picks = await api.similar(state.similar.item, Number(state.k), run);
    return {run, title, picks, user: null, isPopular: false, unknown: []};
  }
  const asked = request(run, about.explains, example);
  const found = await api.recommend(asked);
  return {run, title, picks: found.items, user: asked.user ?? null, isPopular: Boolean(found.fallback), unknown: found.unknown};
}

// Show the state; `focus` returns the element to focus afterwards.
async function show(focus = null) {
  draw();
  const mine = ++latest;
  clearTimeout(retryTimer);
  clearTimeout(shownTimer);
  unsent = [];
  $("results").ariaBusy = "true";
  try {
    const columns = await Promise.all([runName(), ...(state.other ? [state.other] : [])].map(column));
    if (mine !== latest) return;
    failures = 0;
    $("heading").textContent = heading();
    $("back").hidden = !state.similar;
    $("retry").hidden = $("key").hidden = true;
    note(remarks(columns[0]));
    showLists(columns, actions);
    if (!isEmpty() && !state.similar) {
      unsent = columns;
      shownTimer = setTimeout(sendShown, SEEN_MS);
    }
  } catch (error) {
    if (mine !== latest) return;
    if (isEmpty() && example.length && !error.isPassing) { // a model for known users only
      example = [];
      show(focus);
      return;
    }
    fail(error, () => show(focus));
    return;
  }
  $("results").ariaBusy = "false";
  focus?.()?.focus();
}

function remarks({isPopular, picks, unknown}) {
  const notes = [];
  if (isEmpty() && !state.similar) notes.push(isPopular ? "Pick something you like." : "An example. Pick something to get yours.");
  else if (isPopular) notes.push("The model knows none of these items, so these are the most popular ones.");
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

const sameButton = (place, label) => () => {
  const rows = [...document.querySelectorAll(".column:first-child .pick")];
  return rows[Math.min(place, rows.length - 1)]?.querySelector(`button[aria-label^="${label}"]`) ?? $("heading");
};

// Events are stored in their order: a list is shown before one of its items is clicked.
function sendFeedback(event, entries, run = runName()) {
  const {user} = state;
  if (event !== "shown") sendShown();
  if (!abouts[0].feedback || !entries.length) return;
  sending = sending.then(() => api.feedback(event, entries, user, run)).catch(() => {});
}

// Store that the lists on the screen are shown, once.
function sendShown() {
  const columns = unsent;
  unsent = [];
  for (const {run, picks} of columns) sendFeedback("shown", picks, run);
}

function choose(entry) {
  sendFeedback("liked", [entry]);
  state.similar = null;
  state.disliked = without(state.disliked, entry);
  if (![...state.liked, ...state.userHistory].some((known) => same(known, entry))) state.liked = [...state.liked, entry];
}

const actions = {
  like(entry, place) { choose(entry); change(sameButton(place, "Like")); },
  dislike(entry, place) {
    sendFeedback("disliked", [entry]);
    state.liked = without(state.liked, entry);
    state.disliked = [...without(state.disliked, entry), entry];
    change(sameButton(place, "Dislike"));
  },
  similar(entry) {
    sendFeedback("clicked", [entry]);
    state.similar = entry;
    change(() => $("heading"));
  },
  toggle(entry) {
    if (isLiked(entry)) state.liked = without(state.liked, entry);
    else choose(entry);
    change();
  },
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
  $("clear").hidden = isEmpty() && !state.disliked.length;
  $("shared").textContent = "";
  $("link").hidden = true;
  markTiles(isLiked);
  if (state.other && !comparable(abouts, runName()).includes(state.other)) state.other = "";
  drawOptions(abouts);
}

// Copy the URL; without access to the clipboard, show it.
async function share() {
  const link = new URL(address(), location.href).href;
  try {
    await navigator.clipboard.writeText(link);
    $("shared").textContent = "Link copied.";
  } catch {
    $("link").hidden = false;
    $("link-text").value = link;
    $("link-text").select();
  }
}

async function historyOf(user) {
  try {
    return await api.history(user);
  } catch (error) {
    if (error.status === 404) return []; // the list reports the unknown user
    throw error;
  }
}

async function chooseUser(user) {
  try {
    const userHistory = user === null ? [] : await api.history(user);
    Object.assign(state, {user, userHistory, liked: [], disliked: [], similar: null});
    change(() => $("heading"));
  } catch (error) {
    fail(error, () => chooseUser(user));
  }
}

function setUp() {
  setUpSearch((entry) => ready.then(() => { choose(entry); change(() => $("search")); }));
  setUpOptions({show: () => show(), change: () => change(), chooseUser});
  $("clear").onclick = () => { reset(); change(() => $("search")); };
  $("back").onclick = () => { state.similar = null; change(() => $("heading")); };
  $("share").onclick = share;
  $("skip").onclick = (event) => { event.preventDefault(); $("heading").focus(); };
  $("key").onsubmit = (event) => { event.preventDefault(); api.setKey($("key-text").value.trim()); start(); };
  const followBack = () => follow().then(() => show(), (error) => fail(error, followBack));
  window.onpopstate = followBack;
}

// Read the state from the URL; values that the service does not offer are dropped.
async function follow() {
  const find = async (id) => popular.find((entry) => String(entry.item) === id) ?? api.item(id);
  await readAddress(find, historyOf);
  if (state.run || state.other) await describeRuns();
  const names = abouts.map((one) => one.run);
  if (!names.includes(state.run)) state.run = "";
  if (!names.includes(state.other)) state.other = "";
  if (!abouts[0].genres.includes(state.genre)) state.genre = "";
  state.k = String(Math.min(100, Math.max(1, Math.round(Number(state.k)) || 10)));
}

// --- start -----------------------------------------------------------------------------------

async function describeRuns() {
  const [first] = abouts;
  if (abouts.length < first.runs.length) {
    abouts = [first, ...await Promise.all(first.runs.filter((name) => name !== first.run).map(api.about))];
  }
}

function introduce({model, data, items, new_items: fresh, users, titled, explains}) {
  const count = (number, noun) => `${number.toLocaleString("en")} ${noun}`;
  const itemsText = count(items, "items") + (fresh ? ` (${fresh.toLocaleString("en")} new)` : "");
  $("about").textContent = `itemfold · model ${model} · data ${data} · ${itemsText} · ${count(users, "users")}`;
  $("tagline").textContent = `Learned from ${count(users, "people")}${explains ? "; every pick says why" : ""}.`;
  $("search").placeholder = `Search ${count(items, titled ? "titles" : "items by id")}`;
}

// Two popular items of different genres, if there are genres.
function chooseExample() {
  const [first, ...rest] = popular;
  if (!first) return [];
  const apart = rest.find((entry) => !genresOf(entry).some((genre) => genresOf(first).includes(genre)));
  return [first, ...(apart ?? rest[0] ? [apart ?? rest[0]] : [])];
}

async function start() {
  note("");
  try {
    const [first, found] = await Promise.all([api.about(), api.items("", POPULAR)]);
    [abouts, popular] = [[first], found];
    setUpCovers(first);
    introduce(first);
    example = chooseExample();
    await follow();
    const fresh = first.new_items ? await api.items("", 12, {new: true}) : [];
    drawShelves(popular.filter((entry) => !entry.is_new), fresh, actions);
  } catch (error) {
    fail(error, start);
    return;
  }
  $("tools").hidden = false;
  setReady();
  await show();
  describeRuns().then(() => drawOptions(abouts), () => {}); // without them there is nothing to compare
}

setUp();
start();
