// The dashboard: which run stays, and how the service is doing. It asks for the numbers every few seconds.

import * as api from "./api.js";
import {$, element} from "./elements.js";

const EVERY_MS = 5000;
const MEANINGS = {
  401: "no or unknown API key", 403: "not allowed", 404: "unknown path, user, item or run", 405: "wrong method", 408: "request too slow",
  413: "body too large", 421: "unknown Host", 422: "invalid request", 429: "over the rate limit", 499: "client disconnected",
  500: "unexpected error, see the log", 503: "too busy or stopping", 507: "feedback storage is full",
};
let before = null; // {at, requests}: for the current rate
let timer = 0;

const count = (number) => number.toLocaleString("en");
const percent = (number, digits = 1) => `${(100 * number).toFixed(digits)} %`;
const points = (number) => `${number < 0 ? "−" : "+"}${Math.abs(100 * number).toFixed(2)}`;
const milliseconds = (number) => (number === null ? "–" : `${number < 10 ? number.toFixed(1) : count(Math.round(number))} ms`);
const cell = (...children) => element("td", {}, ...children);
const head = (...children) => element("th", {scope: "row"}, ...children);

// An interval as a bar on a scale that all runs share.
function range({value, low, high}, widest) {
  const made = element("span", {className: "range", ariaHidden: "true"}, element("i"), element("b"));
  const place = (number) => `${100 * number / widest}%`;
  made.children[0].style.left = place(low);
  made.children[0].style.width = place(high - low);
  made.children[1].style.left = place(value);
  return made;
}

function runRow(one, widest) {
  const {click_through: rate, events} = one;
  const version = cell(one.run_fingerprint.slice(0, 8),
    element("small", {}, one.serving ? `${one.model}, since ${one.since.slice(0, 16).replace("T", " ")} UTC` : "no longer served"));
  const shown = rate ? [`${percent(rate.value, 2)} (${percent(rate.low, 2)} to ${percent(rate.high, 2)})`, range(rate, widest)] : ["–"];
  return element("tr", {className: one.serving ? "" : "former"},
    head(one.run), version, cell(one.serving ? percent(one.traffic, 0) : "–"), cell(count(events.shown)), cell(count(one.clicked)),
    cell(...shown), cell(count(events.liked)), cell(count(events.disliked)),
    cell(one.coverage === null ? "–" : percent(one.coverage), element("small", {}, `${count(one.items_shown)} items`)),
    cell(events.shown ? percent(one.top_fraction, 0) : "–"));
}

function verdict({run, baseline, difference: {value, low, high}, verdict: found}) {
  const numbers = `click-through ${points(value)} points (${points(low)} to ${points(high)})`;
  const words = {better: `${run} is better than ${baseline}`, worse: `${run} is worse than ${baseline}`,
    undecided: `${run} and ${baseline}: no difference shown yet`}[found];
  return element("li", {}, element("span", {className: found}, words), `, ${numbers}`);
}

function advice(stats) {
  if (!stats.feedback) return "Feedback is not collected: start the service with --feedback FOLDER.";
  if (!stats.runs.some((one) => one.events.shown)) return "No “shown” events yet: send them to /v1/feedback with the name of the run.";
  if (stats.runs.filter((one) => one.serving).length < 2) return "One run is served: serve two, with --split, to compare them.";
  return "The default run and another one need “shown” events to be compared.";
}

function drawRuns(stats) {
  const widest = Math.max(...stats.runs.map((one) => one.click_through?.high ?? 0)) || 1;
  $("runs").replaceChildren(...stats.runs.map((one) => runRow(one, widest)));
  const found = stats.comparisons.map(verdict);
  $("verdicts").replaceChildren(...(found.length ? found : [element("li", {}, advice(stats))]));
}

// Requests per second since the numbers were last asked for; null the first time.
function currentRate(stats) {
  const now = {at: performance.now(), requests: Object.values(stats.statuses).reduce((a, b) => a + b, 0)};
  const rate = before && now.requests >= before.requests ? 1000 * (now.requests - before.requests) / (now.at - before.at) : null;
  before = now;
  return {rate, total: now.requests};
}

function drawService(stats) {
  const {rate, total} = currentRate(stats);
  const main = stats.requests.find((one) => one.path === "/recommend");
  const failed = Object.entries(stats.statuses).filter(([status]) => Number(status) >= 400);
  const figures = [
    ["Requests", count(total)], ["Now, per second", rate === null ? "–" : rate.toFixed(1)], ["In progress", count(stats.in_flight)],
    ["/recommend, median", milliseconds(main?.p50_ms ?? null)], ["/recommend, 99 %", milliseconds(main?.p99_ms ?? null)],
    ["Refused or failed", count(failed.reduce((sum, [, number]) => sum + number, 0))],
    ["Memory", `${count(Math.round(stats.memory_bytes / 2 ** 20))} MiB`],
    ["Reloads", Object.entries(stats.reloads).map(([name, number]) => `${count(number)} ${name}`).join(", ") || "0"],
  ];
  $("figures").replaceChildren(...figures.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  $("paths").replaceChildren(...stats.requests.map((one) => element("tr", {},
    head(one.path), cell(count(one.requests)), cell(milliseconds(one.p50_ms)), cell(milliseconds(one.p95_ms)), cell(milliseconds(one.p99_ms)))));
  const lines = failed.map(([status, number]) => element("li", {}, `${status}, ${MEANINGS[status] ?? "other"}: ${count(number)}`));
  $("refusals").replaceChildren(...(lines.length ? lines : [element("li", {}, "None.")]));
}

async function refresh() {
  clearTimeout(timer);
  try {
    const stats = await api.stats($("days").value);
    drawRuns(stats);
    drawService(stats);
    $("decision").hidden = $("service").hidden = false;
    $("key").hidden = true;
    $("note").textContent = "";
    $("updated").textContent = `updated at ${new Date().toLocaleTimeString("en-GB")}`;
  } catch (error) { // the numbers stay; the next request may succeed
    $("note").textContent = error.message;
    $("key").hidden = error.status !== 401;
    if (error.status === 401) $("updated").textContent = "not signed in";
    $("results").ariaBusy = "false";
    if (error.status === 401) return;
  }
  $("results").ariaBusy = "false";
  if (!document.hidden) timer = setTimeout(refresh, EVERY_MS);
}

$("days").onchange = refresh;
$("key").onsubmit = (event) => { event.preventDefault(); api.setKey($("key-text").value.trim()); refresh(); };
document.onvisibilitychange = () => { if (!document.hidden) refresh(); };
refresh();
