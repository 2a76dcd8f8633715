// The page: a history is typed, the service is asked, its list is shown. The address holds the question.
"use strict";

const $ = (id) => document.getElementById(id);
const SHARES = 3; // largest shares shown of a score
let about = null;
let history_ = []; // [{item, title}]
let user = null;
let asked = 0; // only the latest question is shown
let chosen = -1; // place in the list of items found

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const named = (entry) => entry.title || String(entry.item);

// Whole numbers of 16 digits and more as text: ids may be longer than a number holds exactly.
function exact(json) {
  const wide = /"(?:[^"\\]|\\.)*"|(?<![\d.])-?\d{16,}(?=[,\]}])/g;
  return json.replace(wide, (found) => (found[0] === '"' ? found : `"${found}"`));
}

async function ask(address, question) {
  const options = question && {
    method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(question),
  };
  const answer = await fetch(address, options);
  const content = JSON.parse(exact(await answer.text()));
  if (!answer.ok) throw new Error(content.error);
  return content;
}

function tell(text, wrong = false) {
  $("note").textContent = text;
  $("note").className = wrong ? "wrong" : "";
}

// --- what is asked ---------------------------------------------------------------------------

function question() {
  const whom = user === null ? {history: history_.map((entry) => entry.item)} : {user};
  const genre = $("genre").value;
  return {...whom, k: Number($("k").value) || 10, explain: about.explains, ...(genre ? {genre} : {})};
}

function remember() {
  const fields = new URLSearchParams();
  if (user !== null) fields.set("user", user);
  for (const entry of history_) fields.append("item", entry.item);
  if ($("genre").value) fields.set("genre", $("genre").value);
  if ($("k").value !== "10") fields.set("k", $("k").value);
  const text = fields.toString();
  window.history.replaceState(null, "", text ? `?${text}` : location.pathname);
}

async function recommend() {
  remember();
  const mine = ++asked;
  try {
    const found = await ask("/recommend", question());
    if (mine === asked) show(found);
  } catch (error) {
    if (mine === asked) { $("picks").replaceChildren(); $("legend").hidden = true; tell(error.message, true); }
  }
}

async function similar(entry) {
  const mine = ++asked;
  try {
    const fields = new URLSearchParams({item: entry.item, k: Number($("k").value) || 10});
    const picks = await ask(`/similar?${fields}`);
    if (mine !== asked) return;
    $("heading").textContent = `Like ${named(entry)}`;
    list(picks);
    tell(picks.length ? "" : "no item is like it");
  } catch (error) {
    if (mine === asked) tell(error.message, true);
  }
}

// --- what is shown ---------------------------------------------------------------------------

function show(found) {
  $("heading").textContent = user === null ? "Recommendations" : `Recommendations for ${user}`;
  const told = found.fallback ? [`${found.fallback}.`] : [];
  if (found.unknown.length) told.push(`Not known to this model and left out: ${found.unknown.join(", ")}.`);
  if (!found.items.length) told.push("Nothing is left to recommend.");
  const first = user === null && !history_.length;
  tell(first ? "Nothing is typed yet, so these are the most popular items." : told.join(" "));
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
  const akin = element("button", {className: "like", type: "button"}, "similar");
  akin.onclick = () => similar(pick);
  const body = element("div", {}, title);
  if (pick.reasons.length) {
    body.append(element("div", {className: "shares"}, ...largest(pick.reasons).map((r) => share(r, widest))));
  }
  body.append(more, akin);
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
    const away = element("button", {type: "button", ariaLabel: `Take ${named(entry)} out`}, "×");
    away.onclick = () => { history_ = history_.filter((other) => other !== entry); draw(); recommend(); };
    return element("li", {}, named(entry), away);
  }));
}

// --- the search ------------------------------------------------------------------------------

let waiting = 0;
let searched = 0;

function close() {
  $("found").hidden = true;
  $("search").setAttribute("aria-expanded", "false");
  $("search").removeAttribute("aria-activedescendant");
  chosen = -1;
}

async function search() {
  const mine = ++searched;
  const text = $("search").value.trim();
  if (!text) { close(); return; }
  try {
    const items = await ask(`/items?${new URLSearchParams({q: text, limit: 8})}`);
    if (mine !== searched) return;
    const rows = items.map((entry, place) => {
      const row = element("li", {role: "option", id: `option-${place}`, ariaSelected: "false"}, named(entry));
      row.onmousedown = (event) => { event.preventDefault(); take(entry); };
      row.entry = entry;
      return row;
    });
    chosen = -1;
    $("found").replaceChildren(...(rows.length ? rows : [element("li", {}, "nothing found")]));
    $("found").hidden = false;
    $("search").setAttribute("aria-expanded", "true");
  } catch (error) {
    tell(error.message, true);
  }
}

function take(entry) {
  ++searched;
  $("search").value = "";
  close();
  add(entry);
}

function move(by) {
  const rows = [...$("found").querySelectorAll("[role=option]")];
  if (!rows.length || $("found").hidden) return;
  chosen = (chosen + by + rows.length) % rows.length;
  rows.forEach((row, place) => { row.ariaSelected = String(place === chosen); });
  rows[chosen].scrollIntoView({block: "nearest"});
  $("search").setAttribute("aria-activedescendant", rows[chosen].id);
}

$("search").oninput = () => { clearTimeout(waiting); waiting = setTimeout(search, 120); };
$("search").onblur = close;
$("search").onkeydown = (event) => {
  if (event.key === "ArrowDown") { event.preventDefault(); move(1); }
  if (event.key === "ArrowUp") { event.preventDefault(); move(chosen < 0 ? 0 : -1); }
  if (event.key === "Escape") close();
  if (event.key === "Enter") {
    const rows = [...$("found").querySelectorAll("[role=option]")];
    if (rows.length && !$("found").hidden) take(rows[Math.max(chosen, 0)].entry);
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

// --- the beginning ---------------------------------------------------------------------------

async function begin() {
  try {
    about = await ask("/about");
  } catch (error) {
    tell(error.message, true);
    return;
  }
  const count = (n, what) => `${n.toLocaleString("en")} ${what}`;
  $("about").textContent = [about.model, about.data, count(about.items, "items"), count(about.users, "users")].join(" · ");
  $("genre-field").hidden = !about.genres.length;
  $("genre").append(...about.genres.map((name) => element("option", {value: name}, name)));
  const fields = new URLSearchParams(location.search);
  user = fields.get("user");
  $("user").value = user ?? "";
  $("genre").value = fields.get("genre") ?? "";
  $("k").value = fields.get("k") ?? "10";
  history_ = await Promise.all(fields.getAll("item").map(async (item) => {
    const found = await ask(`/items?${new URLSearchParams({q: item, limit: 1})}`).catch(() => []);
    return found.find((first) => String(first.item) === item) ?? {item, title: ""};
  }));
  draw();
  recommend();
}

begin();
