// Requests to the service, with errors in plain words.

let key = sessionStorage.getItem("itemfold-key") ?? "";

export function setKey(text) {
  key = text;
  sessionStorage.setItem("itemfold-key", text);
}

export class ServiceError extends Error {
  constructor(message, status, wait = 0) {
    super(message);
    this.status = status;
    this.wait = wait; // seconds that the service asks to wait
  }

  // Whether the same request may succeed later.
  get isPassing() { return this.status === 0 || this.status === 429 || this.status >= 500; }
}

// Quote integers of 16 digits and more: ids may exceed the precision of a number.
function quoteLongNumbers(json) {
  const wide = /"(?:[^"\\]|\\.)*"|(?<![\d.])-?\d{16,}(?=[,\]}])/g;
  return json.replace(wide, (found) => (found[0] === '"' ? found : `"${found}"`));
}

function sentence(status, text) {
  if (status === 401) return "This service needs an API key.";
  if (status === 429) return "Too many requests with this key. Try again in a moment.";
  if (status === 503) return "The service is busy. Try again in a moment.";
  const user = /^'user' must be a user of the training data, got '?(.*?)'?(;|$)/.exec(text);
  if (user) return `Unknown user: ${user[1]}.`;
  const item = /^'item' must be an item of the training data, got '?(.*?)'?(;|$)/.exec(text);
  if (item) return `Unknown item: ${item[1]}.`;
  return text || `The service does not answer (status ${status}).`;
}

async function send(path, body) {
  const headers = {...(key && {Authorization: `Bearer ${key}`}), ...(body && {"Content-Type": "application/json"})};
  const options = body ? {method: "POST", headers, body: JSON.stringify(body)} : {headers};
  let response, text;
  try {
    response = await fetch(`/v1${path}`, options);
    text = await response.text();
  } catch {
    throw new ServiceError("The service cannot be reached. Is it running?", 0);
  }
  let content = null;
  try {
    content = JSON.parse(quoteLongNumbers(text));
  } catch {
    // the error page of a proxy: the status is enough
  }
  if (!response.ok || content === null) {
    const wait = Number(response.headers.get("Retry-After")) || 0;
    throw new ServiceError(sentence(response.status, content?.error), response.status, wait);
  }
  return content;
}

const query = (path, fields) => send(`${path}?${new URLSearchParams(fields)}`);

export const about = (run) => query("/about", run ? {run} : {});
export const recommend = (body) => send("/recommend", body);
export const similar = (item, k, run) => query("/similar", {item, k, ...(run && {run})});
export const history = (user) => query("/history", {user});
export const stats = (days) => query("/stats", {days});
export const items = (q, limit, filter = {}) => query("/items", {q, limit, ...filter});
export const feedback = (event, entries, user, run) => send("/feedback", {event, items: entries.map((entry) => entry.item), user, run});

// The item with an id; without a title if it is unknown.
export async function item(id) {
  const found = await items(id, 1).catch(() => []);
  return found.find((entry) => String(entry.item) === String(id)) ?? {item: id, title: "", genres: ""};
}
