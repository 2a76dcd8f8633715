// Why an item is in a list: one sentence, and bars with the exact shares of its score.

import {element} from "./elements.js";
import {joined, named, shortName} from "./titles.js";

const NOTABLE = 0.5; // a second reason is named if its share is at least this fraction of the first

const signed = (number, digits) => `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(digits)}`;
// Decimals of a column: four significant digits of its largest number, at most three decimals.
const decimals = (numbers) => Math.max(0, 4 - Math.max(1, ...numbers.map((n) => Math.trunc(Math.abs(n)).toString().length)));

// The part of a score that no history item contributes.
function ownPart(pick, user) {
  if (user !== null) return `the profile of user ${user}`;
  return pick.is_new ? "its features" : "its popularity";
}

// The sentence of a pick; "" if the model gives no reasons. `user` is null for "you".
export function because(pick, user) {
  const [first, ...rest] = pick.reasons.filter((reason) => reason.share > 0);
  const own = pick.own ?? 0;
  if (!first) return own > 0 ? `Because of ${ownPart(pick, user)}` : "";
  const named = [first, ...rest.filter((reason) => reason.share >= NOTABLE * first.share).slice(0, 1)];
  const liked = `${user === null ? "you" : `user ${user}`} liked ${joined(named.map(shortName))}`;
  return own > first.share ? `Because of ${ownPart(pick, user)}, and ${liked}` : `Because ${liked}`;
}

// All shares of a score; those of items that are not listed are summed.
function shares(pick, user) {
  const rest = [["other items", pick.others], [ownPart(pick, user), pick.own]];
  const extra = rest.filter(([, share]) => Math.abs(share ?? 0) > 1e-4 * Math.abs(pick.score));
  return pick.reasons.length ? [...pick.reasons, ...extra.map(([title, share]) => ({title, share, rest: true}))] : [];
}

// The scale that all bars of a list have in common: bars below zero go to the left.
export function scaleOf(picks, user) {
  const all = picks.flatMap((pick) => shares(pick, user).map((reason) => reason.share));
  const least = Math.min(0, ...all);
  return {least, width: Math.max(0, ...all) - least || 1, digits: decimals(all)};
}

function shareLine({title, item, share, rest}, {least, width, digits}) {
  const percent = (number) => `${100 * number / width}%`;
  const bar = element("i");
  bar.style.left = percent(Math.min(0, share) - least);
  bar.style.width = percent(Math.abs(share));
  const track = element("span", {className: "bar", ariaHidden: "true"}, bar);
  track.style.setProperty("--zero", percent(-least));
  return element("li", {className: `${share < 0 ? "minus" : ""} ${rest ? "rest" : ""}`},
    element("span", {className: "what"}, named({title, item})), track,
    element("span", {className: "value"}, signed(share, digits)));
}

export function bars(pick, user, scale) {
  const lines = shares(pick, user).map((reason) => shareLine(reason, scale));
  return element("ul", {className: "shares", ariaLabel: "Share of each item in the score"}, ...lines);
}
