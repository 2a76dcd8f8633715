// The state of the page and the URL that holds it: a shared URL shows the same list.

export const state = {
  user: null, // id of a known user
  userHistory: [], // [{item, title}] of that user
  liked: [], // [{item, title}]
  disliked: [],
  genre: "",
  k: "10",
  diversity: "0", // 0 … 1
  discount: "0", // of popularity, 0 … 1
  run: "",
  other: "", // the run to compare with
  similar: null, // {item, title}: show its similar items instead
};

export const same = (a, b) => String(a.item) === String(b.item);
export const isEmpty = () => state.user === null && !state.liked.length;
export const without = (list, entry) => list.filter((other) => !same(other, entry));
export const isLiked = (entry) => state.liked.some((other) => same(other, entry));

export function reset() {
  Object.assign(state, {user: null, userHistory: [], liked: [], disliked: [], genre: "", k: "10", diversity: "0", discount: "0", similar: null});
}

export function address() {
  const fields = new URLSearchParams();
  if (state.user !== null) fields.set("user", state.user);
  for (const entry of state.liked) fields.append("item", entry.item);
  for (const entry of state.disliked) fields.append("not", entry.item);
  for (const [name, value, usual] of [
    ["genre", state.genre, ""], ["k", state.k, "10"],
    ["diversity", state.diversity, "0"], ["discount", state.discount, "0"], ["run", state.run, ""], ["with", state.other, ""],
  ]) if (value !== usual) fields.set(name, value);
  if (state.similar) fields.set("similar", state.similar.item);
  const text = fields.toString();
  return text ? `?${text}` : location.pathname;
}

// The value of a slider in the URL: a number from 0 to 1; 0 if it is invalid.
const strength = (text) => String(Math.min(1, Math.max(0, Number(text) || 0)));

// Read the URL; `find` looks up an item, `historyOf` the items of a user.
export async function readAddress(find, historyOf) {
  const fields = new URLSearchParams(location.search);
  reset();
  state.user = fields.get("user") || null;
  state.genre = fields.get("genre") ?? "";
  state.k = fields.get("k") ?? "10";
  for (const name of ["diversity", "discount"]) state[name] = strength(fields.get(name));
  state.run = fields.get("run") ?? "";
  state.other = fields.get("with") ?? "";
  const all = (name) => Promise.all(fields.getAll(name).map(find));
  [state.liked, state.disliked, [state.similar = null]] = await Promise.all([all("item"), all("not"), all("similar")]);
  if (state.user !== null) state.userHistory = await historyOf(state.user);
}

// The request to a run. A known user who likes more items becomes a history of all of them; `example` is the
// history of a visitor who has not chosen anything.
export function request(run, explains, example) {
  const chosen = isEmpty() ? example : [...state.userHistory, ...state.liked];
  const source = state.user !== null && !state.liked.length
    ? {user: state.user}
    : {history: chosen.map((entry) => entry.item)};
  const explain = explains && ("user" in source || chosen.length > 0);
  return {
    ...source, run, k: Number(state.k), explain, ...(explain && {reasons: 3}),
    ...(state.genre && {genre: state.genre}),
    ...(state.diversity !== "0" && {diversity: Number(state.diversity)}),
    ...(state.discount !== "0" && {popularity_discount: Number(state.discount)}),
    // a model that explains its scores can also use dislikes
    ...(state.disliked.length && {[explains ? "dislikes" : "without"]: state.disliked.map((entry) => entry.item)}),
  };
}
