// DOM functions.

export const $ = (id) => document.getElementById(id);

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

// A toolbar is one stop of the Tab key; the arrow keys, Home and End move within it.
export function toolbar(label, className, ...buttons) {
  const made = element("div", {role: "toolbar", ariaLabel: label, className}, ...buttons);
  const stop = (at) => buttons.forEach((one) => { one.tabIndex = one === at ? 0 : -1; });
  stop(buttons[0]);
  made.addEventListener("focusin", (event) => stop(event.target.closest("button")));
  made.onkeydown = (event) => {
    const place = buttons.indexOf(document.activeElement);
    const next = {ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: buttons.length - 1}[event.key];
    if (!buttons[next]) return;
    event.preventDefault();
    buttons[next].focus();
  };
  return made;
}
