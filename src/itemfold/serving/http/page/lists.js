// Lists of recommendations: one, or two side by side with common items marked.

import {$, button, element, genresOf, named, picture} from "./elements.js";

const signed = (number, digits) => `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(digits)}`;
const scoreText = (score, digits) => (Number.isInteger(score) ? score.toLocaleString("en") : score.toFixed(digits));
// Decimals of a column: four significant digits of its largest number, at most three decimals.
const decimals = (numbers) => Math.max(0, 4 - Math.max(1, ...numbers.map((n) => Math.trunc(Math.abs(n)).toString().length)));

// The part of a score that no history item contributes.
function ownPart(pick, ofUser) {
  if (ofUser) return "the user's profile";
  return pick.is_new ? "its features" : "its popularity";
}

// The shares of a score; those that are not listed are summed in one line.
function shares(pick, ofUser) {
  const rest = [["other items", pick.others], [ownPart(pick, ofUser), pick.own]];
  const extra = rest.filter(([, share]) => Math.abs(share ?? 0) > 1e-4 * Math.abs(pick.score));
  return pick.reasons.length ? [...pick.reasons, ...extra.map(([title, share]) => ({title, share, rest: true}))] : [];
}

function shareLine(reason, {widest, digits}) {
  const bar = element("i");
  bar.style.width = `${100 * Math.abs(reason.share) / (widest || 1)}%`;
  return element("li", {className: `${reason.share < 0 ? "minus" : ""} ${reason.rest ? "rest" : ""}`},
    element("span", {className: "what"}, named(reason)),
    element("span", {className: "bar", ariaHidden: "true"}, bar),
    element("span", {className: "value"}, signed(reason.share, digits)));
}

// A new item, with the known items that it is similar to.
function newMark(pick) {
  const known = (pick.like ?? []).map((one) => [named(one), one.shared.slice(0, 3).join(", ")].filter(Boolean).join(": "));
  return element("div", {className: "fresh"}, element("span", {className: "mark"}, "new"), known.length ? ` like ${known.join("; ")}` : "");
}

function row(pick, place, format, otherPlaces, actions) {
  const text = element("div", {className: "text"}, ...picture(pick), element("div", {className: "title"}, named(pick)));
  if (pick.genres) text.append(element("div", {className: "genres"}, genresOf(pick)));
  const there = otherPlaces?.get(String(pick.item));
  if (there !== undefined) text.append(element("span", {className: "both"}, `in both lists, ${there + 1} there`));
  if (pick.is_new) text.append(newMark(pick));
  const name = named(pick);
  text.append(element("div", {className: "actions"},
    button("Like", `Like ${name}`, () => actions.like(pick, place)),
    button("Dislike", `Dislike ${name}`, () => actions.dislike(pick, place)),
    button("Similar", `Items similar to ${name}`, () => actions.similar(pick))));
  const lines = shares(pick, format.ofUser).map((reason) => shareLine(reason, format));
  const score = element("span", {className: "score"}, scoreText(pick.score, format.digits), element("small", {}, ` ${format.measure}`));
  return element("li", {className: there === undefined ? "pick" : "pick shared"},
    element("span", {className: "place"}, String(place + 1)), text,
    lines.length ? element("ul", {className: "shares", ariaLabel: "Why"}, ...lines) : element("span"), score);
}

export function showLists(columns, actions) {
  const places = columns.map(({picks}) => new Map(picks.map((pick, place) => [String(pick.item), place])));
  const made = columns.map(({title, picks, measure, ofUser}, number) => {
    const widest = Math.max(0, ...picks.flatMap((pick) => shares(pick, ofUser).map((reason) => Math.abs(reason.share))));
    const other = columns.length > 1 ? places[1 - number] : null;
    const digits = decimals([widest, ...picks.map((pick) => pick.score)]);
    const rows = picks.map((pick, place) => row(pick, place, {widest, digits, ofUser, measure}, other, actions));
    const list = element("ol", {className: widest || other ? "picks" : "picks plain", ariaLabel: title || "Recommendations"}, ...rows);
    const heading = columns.length > 1 ? [element("h3", {}, title)] : [];
    return element("div", {className: "column"}, ...heading, list);
  });
  $("lists").className = columns.length > 1 ? "two" : "";
  $("lists").replaceChildren(...made);
  $("legend").hidden = !columns.some(({picks}) => picks.some((pick) => pick.reasons.length));
}

export function showLoading() {
  $("results").ariaBusy = "true";
  if (!$("lists").children.length) {
    const line = () => element("li", {className: "pick waiting"}, element("span"), element("span", {className: "blank"}));
    $("lists").replaceChildren(element("ol", {className: "picks", ariaHidden: "true"}, ...Array.from({length: 5}, line)));
  }
}
