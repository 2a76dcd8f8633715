// The page: type a history, request recommendations, show them. The URL holds the current request.
"use strict";

const $ = (id) => document.getElementById(id);
const SHARES = 3; // largest shares shown of a score
let about = null;
let history_ = []; // [{item, title}]
let user = null;
let latest = 0; // only the latest response is shown
let selected = -1; // index in the search results

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const named = (entry) => entry.title || String(entry.item);

// Whole numbers of 16 digits and more as text: ids may be longer than a number holds exactly.
function quoteLongNumbers(json) {
  const wide = /"(?:[^"\\]|\\.)*"|(?<![\d.])-?\d{16,}(?=[,\]}])/g;
  return json.replace(wide, (found) => (found[0] === '"' ? found : `"${found}"`));
}

async function fetchJson(url, body) {
  const options = body && {
    method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body),
  };
  const response = await fetch(url, options);
  const content = JSON.parse(quoteLongNumbers(await response.text()));
  if (!response.ok) throw new Error(content.error);
  return content;
}

function showNote(text, isError = false) {
  $("note").textContent = text;
  $("note").className = isError ? "wrong" : "";
}

// --- requests --------------------------------------------------------------------------------

function currentRequest() {
  const audience = user === null ? {history: history_.map((entry) => entry.item)} : {user};
  const genre = $("genre").value;
  return {...audience, k: Number($("k").value) || 10, explain: about.explains, ...(genre ? {genre} : {})};
}

function updateUrl() {
  const fields = new URLSearchParams();
  if (user !== null) fields.set("user", user);
  for (const entry of history_) fields.append("item", entry.item);
  if ($("genre").value) fields.set("genre", $("genre").value);
  if ($("k").value !== "10") fields.set("k", $("k").value);
  const text = fields.toString();
  window.history.replaceState(null, "", text ? `?${text}` : location.pathname);
}

async function recommend() {
  updateUrl();
  const mine = ++latest;
  try {
    const found = await fetchJson("/recommend", currentRequest());
    if (mine === latest) show(found);
  } catch (error) {
    if (mine === latest) { $("picks").replaceChildren(); $("legend").hidden = true; showNote(error.message, true); }
  }
}

async function similar(entry) {
  const mine = ++latest;
  try {
    const fields = new URLSearchParams({item: entry.item, k: Number($("k").value) || 10});
    const picks = await fetchJson(`/similar?${fields}`);
    if (mine !== latest) return;
    $("heading").textContent = `Similar to ${named(entry)}`;
    list(picks);
    showNote(picks.length ? "" : "no similar item");
  } catch (error) {
    if (mine === latest) showNote(error.message, true);
  }
}

// --- results ---------------------------------------------------------------------------------

function show(found) {
  $("heading").textContent = user === null ? "Recommendations" : `Recommendations for ${user}`;
  const notes = found.fallback ? [`${found.fallback}.`] : [];
  if (found.unknown.length) notes.push(`Not known to this model and left out: ${found.unknown.join(", ")}.`);
  if (!found.items.length) notes.push("No item is left to recommend.");
  const isEmpty = user === null && !history_.length;
  showNote(isEmpty ? "No history yet, so these are the most popular items." : notes.join(" "));
  list(found.items);
}

function list(picks) {
  const shares = picks.flatMap((pick) => largest(pick.reasons).map((reason) => Math.abs(reason.share)));
  const widest = Math.max(0, ...shares);
  $("picks").replaceChildren(...picks.map((pick, place) => line(pick, place, widest)));
  $("legend").hidden = widest === 0;
}

function line(pick, place, widest) {
  const title = element("div", {className: "title"}, named(pick));
  if (pick.genres) title.append(element("span", {className: "genres"}, pick.genres.split("|").join(", ")));
  const more = element("button", {className: "like", type: "button"}, "I like it");
  more.onclick = () => add(pick);
  const alike = element("button", {className: "like", type: "button"}, "similar");
  alike.onclick = () => similar(pick);
  const body = element("div", {}, title);
  if (pick.reasons.length) {
    body.append(element("div", {className: "shares"}, ...largest(pick.reasons).map((r) => share(r, widest))));
  }
  body.append(more, alike);
  const score = element("span", {className: "score", title: "score"}, pick.score.toFixed(3));
  return element("li", {}, element("span", {className: "place"}, String(place + 1)), body, score);
}

function largest(reasons) {
  const others = reasons.slice(SHARES);
  if (others.length < 2) return reasons;
  const sum = others.reduce((total, reason) => total + reason.share, 0);
  return [...reasons.slice(0, SHARES), {title: `${others.length} others together`, share: sum}];
}

function share(reason, widest) {
  const bar = element("i", {className: reason.share < 0 ? "minus" : "", title: reason.share.toFixed(4)});
  bar.style.width = `${100 * Math.abs(reason.share) / (widest || 1)}%`;
  return element("div", {className: "share"}, element("div", {}, bar), element("span", {}, named(reason)));
}

// --- the history -----------------------------------------------------------------------------

function add(entry) {
  user = null;
  $("user").value = "";
  if (!history_.some((known) => String(known.item) === String(entry.item))) history_.push(entry);
  draw();
  recommend();
}

function draw() {
  $("history").replaceChildren(...history_.map((entry) => {
    const remove = element("button", {type: "button", ariaLabel: `Remove ${named(entry)}`}, "×");
    remove.onclick = () => { history_ = history_.filter((other) => other !== entry); draw(); recommend(); };
    return element("li", {}, named(entry), remove);
  }));
}

// --- the search ------------------------------------------------------------------------------

let timer = 0;
let searched = 0;

function close() {
  $("found").hidden = true;
  $("search").setAttribute("aria-expanded", "false");
  $("search").removeAttribute("aria-activedescendant");
  selected = -1;
}

async function search() {
  const mine = ++searched;
  const text = $("search").value.trim();
  if (!text) { close(); return; }
  try {
    const items = await fetchJson(`/items?${new URLSearchParams({q: text, limit: 8})}`);
    if (mine !== searched) return;
    const rows = items.map((entry, place) => {
      const row = element("li", {role: "option", id: `option-${place}`, ariaSelected: "false"}, named(entry));
      row.onmousedown = (event) => { event.preventDefault(); choose(entry); };
      row.entry = entry;
      return row;
    });
    selected = -1;
    $("found").replaceChildren(...(rows.length ? rows : [element("li", {}, "nothing found")]));
    $("found").hidden = false;
    $("search").setAttribute("aria-expanded", "true");
  } catch (error) {
    showNote(error.message, true);
  }
}

function choose(entry) {
  ++searched;
  $("search").value = "";
  close();
  add(entry);
}

function move(by) {
  const rows = [...$("found").querySelectorAll("[role=option]")];
  if (!rows.length || $("found").hidden) return;
  selected = (selected + by + rows.length) % rows.length;
  rows.forEach((row, place) => { row.ariaSelected = String(place === selected); });
  rows[selected].scrollIntoView({block: "nearest"});
  $("search").setAttribute("aria-activedescendant", rows[selected].id);
}

$("search").oninput = () => { clearTimeout(timer); timer = setTimeout(search, 120); };
$("search").onblur = close;
$("search").onkeydown = (event) => {
  if (event.key === "ArrowDown") { event.preventDefault(); move(1); }
  if (event.key === "ArrowUp") { event.preventDefault(); move(selected < 0 ? 0 : -1); }
  if (event.key === "Escape") close();
  if (event.key === "Enter") {
    const rows = [...$("found").querySelectorAll("[role=option]")];
    if (rows.length && !$("found").hidden) choose(rows[Math.max(selected, 0)].entry);
  }
};
$("known").onsubmit = (event) => {
  event.preventDefault();
  user = $("user").value.trim() || null;
  history_ = [];
  draw();
  recommend();
};
$("genre").onchange = recommend;
$("k").onchange = recommend;
$("clear").onclick = () => {
  user = null; history_ = []; $("user").value = ""; $("genre").value = ""; $("k").value = "10";
  draw();
  recommend();
};

// --- start -----------------------------------------------------------------------------------

async function start() {
  try {
    about = await fetchJson("/about");
  } catch (error) {
    showNote(error.message, true);
    return;
  }
  const count = (n, noun) => `${n.toLocaleString("en")} ${noun}`;
  $("about").textContent = [about.model, about.data, count(about.items, "items"), count(about.users, "users")].join(" · ");
  $("genre-field").hidden = !about.genres.length;
  $("genre").append(...about.genres.map((name) => element("option", {value: name}, name)));
  const fields = new URLSearchParams(location.search);
  user = fields.get("user");
  $("user").value = user ?? "";
  $("genre").value = fields.get("genre") ?? "";
  $("k").value = fields.get("k") ?? "10";
  history_ = await Promise.all(fields.getAll("item").map(async (item) => {
    const found = await fetchJson(`/items?${new URLSearchParams({q: item, limit: 1})}`).catch(() => []);
    return found.find((first) => String(first.item) === item) ?? {item, title: ""};
  }));
  draw();
  recommend();
}

start();
