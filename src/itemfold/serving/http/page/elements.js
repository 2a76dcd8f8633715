// DOM functions.

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

// Images are shown only from hosts that the service allows.
let imageHosts = [];
export const setImageHosts = (hosts) => { imageHosts = hosts; };

export function picture(entry) {
  if (!entry.image || !URL.canParse(entry.image)) return [];
  if (!imageHosts.includes(new URL(entry.image).origin)) return [];
  const made = element("img", {className: "picture", alt: "", loading: "lazy", src: entry.image});
  made.onerror = () => made.remove();
  return [made];
}

export const genresOf = (entry) => (entry.genres || "").split("|").join(", ");
