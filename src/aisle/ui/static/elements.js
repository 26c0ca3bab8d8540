// Elements from plain values. Text is always set as text, so nothing that a seller or buyer typed can become markup.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

// Puts new children in place; whoever had the focus by its `data-key` gets it back.
export function refill(parent, ...children) {
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  parent.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
  if (key !== undefined)
    (parent.querySelector(`[data-key="${CSS.escape(key)}"]`) ?? parent.querySelector("button, a"))?.focus();
}

let hide = 0;

// One line for everybody: shown for a while, read out by a screen reader.
export function say(words) {
  const place = byId("says");
  place.textContent = words;
  clearTimeout(hide);
  hide = setTimeout(() => (place.textContent = ""), 8000);
}

// A button that works on it: not to be pressed twice, and back whatever happens.
export async function busy(button, work) {
  if (button.getAttribute("aria-busy") === "true") return undefined;
  button.setAttribute("aria-busy", "true");
  button.setAttribute("aria-disabled", "true");
  try {
    return await work();
  } finally {
    button.removeAttribute("aria-busy");
    button.removeAttribute("aria-disabled");
  }
}

// A button that asks once more in its own place before it does something that cannot be undone.
export function askTwice({ key, words, really, yes, no }, work) {
  const ask = make("button", { type: "button", class: "quiet", "data-key": key }, words);
  const keep = make("button", { type: "button", class: "primary", "data-key": `${key}-no` }, no);
  const act = make("button", { type: "button", "data-key": `${key}-yes` }, yes);
  const asked = make("div", { class: "panel", role: "group", hidden: true }, make("p", {}, really), keep, act);
  const show = (isAsked) => {
    asked.hidden = !isAsked;
    ask.hidden = isAsked;
    (isAsked ? keep : ask).focus();
  };
  ask.addEventListener("click", () => show(true));
  keep.addEventListener("click", () => show(false));
  act.addEventListener("click", () => busy(act, work));
  return make("div", { class: "actions" }, ask, asked);
}
