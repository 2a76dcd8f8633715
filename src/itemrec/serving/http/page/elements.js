// Small helpers for the document.

export const $ = (id) => document.getElementById(id);
export const named = (entry) => entry.title || String(entry.item);

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function button(text, label, action, className = "") {
  const made = element("button", {type: "button", className}, text);
  made.ariaLabel = label;
  made.onclick = action;
  return made;
}

export const genresOf = (entry) => (entry.genres || "").split("|").join(", ");
