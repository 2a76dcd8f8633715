// Lists of recommendations: one, or two side by side with common items marked.

import {thumbnail} from "./covers.js";
import {$, button, element, toolbar} from "./elements.js";
import {bars, because, scaleOf} from "./reasons.js";
import {genresOf, named} from "./titles.js";

// Matches relative to the best score, from 0 to 1. Where scores go below zero, the lowest is a tenth.
export function matches(scores) {
  const best = Math.max(...scores);
  const least = Math.min(...scores);
  if (best === least) return scores.map(() => 1);
  return scores.map((score) => (least < 0 ? 0.1 + 0.9 * (score - least) / (best - least) : score / best));
}

// A title with its year, which is less prominent.
function yearApart(name) {
  const [, text, year] = /^(.+?)(\s*\(\d{4}\))$/.exec(name) ?? [null, name, ""];
  return [text, element("span", {className: "year"}, year)];
}

function matchBar(match) {
  const text = `Match: ${Math.round(100 * match)} % of the best`;
  const made = element("span", {className: "match", role: "img", ariaLabel: text, title: text}, element("i"));
  made.firstChild.style.width = `${100 * match}%`;
  return made;
}

// A new item, with the known items that it is similar to.
function newMark(pick) {
  const known = (pick.like ?? []).map((one) => [named(one), one.shared.slice(0, 3).join(", ")].filter(Boolean).join(": "));
  return element("div", {className: "fresh"}, element("span", {className: "mark"}, "new"), known.length ? ` like ${known.join("; ")}` : "");
}

// The button that shows the bars of a row.
function whyButton(pick, format, into) {
  const made = button("Why?", `Why ${named(pick)}`, () => {
    const open = made.ariaExpanded !== "true";
    made.ariaExpanded = String(open);
    into.replaceChildren(...(open ? [bars(pick, format.user, format.scale)] : []));
  });
  made.ariaExpanded = "false";
  return made;
}

function row(pick, place, format, there, actions) {
  const name = named(pick);
  const reason = format.isPopular ? `Chosen by ${pick.score.toLocaleString("en")} users` : because(pick, format.user);
  const text = element("div", {className: "text"}, element("div", {className: "title"}, ...yearApart(name)));
  if (pick.genres) text.append(element("div", {className: "genres"}, genresOf(pick).join(", ")));
  if (reason) text.append(element("p", {className: "because"}, reason));
  if (pick.is_new) text.append(newMark(pick));
  if (there !== undefined) text.append(element("span", {className: "both"}, `in both lists, ${there + 1} there`));
  text.append(matchBar(format.matches[place]));
  const detail = element("div", {className: "detail"});
  const buttons = [
    button("Like", `Like ${name}`, () => actions.like(pick, place)),
    button("Dislike", `Dislike ${name}`, () => actions.dislike(pick, place)),
    button("Similar", `Items similar to ${name}`, () => actions.similar(pick)),
    ...(pick.reasons.length ? [whyButton(pick, format, detail)] : []),
  ];
  return element("li", {className: there === undefined ? "pick" : "pick shared"},
    thumbnail(pick), text, toolbar(name, "actions", ...buttons), detail);
}

// The up and down keys move between the rows of a list.
function moveBetweenRows(event) {
  const by = {ArrowDown: 1, ArrowUp: -1}[event.key];
  const here = event.target.closest(".pick");
  const next = by > 0 ? here?.nextElementSibling : here?.previousElementSibling;
  if (!by || !next) return;
  event.preventDefault();
  const place = [...here.querySelectorAll(".actions button")].indexOf(event.target);
  const buttons = next.querySelectorAll(".actions button");
  buttons[Math.min(Math.max(place, 0), buttons.length - 1)].focus();
}

export function showLists(columns, actions) {
  const places = columns.map(({picks}) => new Map(picks.map((pick, place) => [String(pick.item), place])));
  const made = columns.map(({title, picks, isPopular, user}, number) => {
    const other = columns.length > 1 ? places[1 - number] : null;
    const format = {isPopular, user, scale: scaleOf(picks, user), matches: matches(picks.map((pick) => pick.score))};
    const rows = picks.map((pick, place) => row(pick, place, format, other?.get(String(pick.item)), actions));
    const list = element("ol", {className: "picks", ariaLabel: title || "Recommendations"}, ...rows);
    list.addEventListener("keydown", moveBetweenRows);
    return element("div", {className: "column"}, ...(columns.length > 1 ? [element("h3", {}, title)] : []), list);
  });
  $("lists").className = columns.length > 1 ? "two" : "";
  $("lists").replaceChildren(...made);
  $("legend").hidden = !columns.some(({picks}) => picks.length);
}
