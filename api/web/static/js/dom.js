// Small helpers for elements, and what is said to people.

export const byId = (id) => document.getElementById(id);

/** An element with properties and children. Strings become text, never HTML. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "dataset") Object.assign(element.dataset, value);
    else if (name.startsWith("aria-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const SAY_EVERY_MS = 4000;
let lastSaid = 0;
let waiting = null;

/** Tell screen readers. `soon` things replace each other, so that progress does not drown everything else. */
export function say(text, { soon = false } = {}) {
  clearTimeout(waiting);
  const speak = () => {
    lastSaid = Date.now();
    byId("live").textContent = text;
  };
  if (!soon) speak();
  else waiting = setTimeout(speak, Math.max(0, lastSaid + SAY_EVERY_MS - Date.now()));
}

/** Show what went wrong until it is dismissed. */
export function complain(error) {
  if (error?.name === "AbortError") return;
  const text = error?.message ?? String(error);
  const toasts = byId("toasts");
  if ([...toasts.children].some((toast) => toast.dataset.text === text)) return;
  const dismiss = make("button", { type: "button", className: "quiet", ariaLabel: "Dismiss" }, "✕");
  const toast = make("div", { className: "toast", dataset: { text } }, make("span", {}, text), dismiss);
  dismiss.addEventListener("click", () => toast.remove());
  toasts.append(toast);
}

/** Take back what was shown, for instance because the service answers again. */
export function withdraw(error) {
  for (const toast of [...byId("toasts").children]) if (toast.dataset.text === error.message) toast.remove();
}

/** Start saving a file under a name. */
export function save(url, name) {
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}

export function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  const unit = size < 1024 ** 2 ? 1 : size < 1024 ** 3 ? 2 : 3;
  return `${(size / 1024 ** unit).toFixed(size / 1024 ** unit < 10 ? 1 : 0)} ${["", "KB", "MB", "GB"][unit]}`;
}
