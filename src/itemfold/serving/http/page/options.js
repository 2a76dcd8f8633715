// The options: a known user, filters, re-ranking, and which models are shown.

import {$, element} from "./elements.js";
import {state} from "./state.js";

const SLIDERS = ["diversity", "discount"];
const LENGTHS = ["5", "10", "20", "50"];
let drawnUser = null; // the user of the state that the field shows

const optionsOf = (names) => names.map((name) => element("option", {}, name));

// Similar items are not re-ranked, so their sliders are disabled.
function drawSlider(id) {
  $(id).value = state[id];
  $(id).disabled = Boolean(state.similar);
  $(`${id}-text`).textContent = state[id] === "0" ? "off" : `${Math.round(100 * Number(state[id]))} %`;
}

// The runs that a run can be compared with: those with other contents.
export function comparable(abouts, name) {
  const own = abouts.find((one) => one.run === name);
  return abouts.filter((one) => one.run_fingerprint !== own?.run_fingerprint).map((one) => one.run);
}

// `abouts` are the descriptions of the runs that are known so far, the default run first.
export function drawOptions(abouts) {
  const [{genres, run}] = abouts;
  const others = comparable(abouts, state.run || run);
  if (state.user !== drawnUser) $("user").value = state.user ?? ""; // not while somebody types
  drawnUser = state.user;
  $("genre-field").hidden = !genres.length;
  $("genre").replaceChildren($("genre").options[0], ...optionsOf(genres));
  $("genre").value = state.genre;
  $("k").replaceChildren(...optionsOf([...new Set([...LENGTHS, state.k])]));
  $("k").value = state.k;
  $("run-field").hidden = abouts.length < 2;
  $("run").replaceChildren(...optionsOf(abouts.map((one) => one.run)));
  $("run").value = state.run || run;
  $("with-field").hidden = !others.length;
  $("with").replaceChildren(element("option", {value: ""}, "nothing"), ...optionsOf(others));
  $("with").value = state.other;
  SLIDERS.forEach(drawSlider);
}

// The list follows a moving slider; the URL changes when it is released.
function setUpSlider(id, show, change) {
  let timer = 0;
  $(id).oninput = () => {
    state[id] = $(id).value;
    drawSlider(id);
    clearTimeout(timer);
    timer = setTimeout(show, 120);
  };
  $(id).onchange = () => { clearTimeout(timer); state[id] = $(id).value; change(); };
}

export function setUpOptions({show, change, chooseUser}) {
  $("known").onsubmit = (event) => { event.preventDefault(); chooseUser($("user").value.trim() || null); };
  for (const [id, name] of [["genre", "genre"], ["k", "k"], ["run", "run"], ["with", "other"]]) {
    $(id).onchange = () => { state[name] = $(id).value; change(); };
  }
  SLIDERS.forEach((id) => setUpSlider(id, show, change));
}
