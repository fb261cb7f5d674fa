// Puts the page together: list, uploads, the open document, the address, keys.

import { byId, complain, say, withdraw } from "./dom.js";
import { DocumentCards } from "./list.js";
import * as service from "./service.js";
import { installUploads } from "./uploads.js";
import { Viewer } from "./viewer.js";

const BUSY_MS = 1500;
const IDLE_MS = 10_000;

const cards = new DocumentCards({ open: (id) => go(id), cancel: stop });
const viewer = new Viewer({
  changed: (doc) => cards.update(doc),
  gone: (id) => cards.remove(id),
  moved: (id, page) => setAddress(id, page),
  closed: () => {
    const id = cards.selected;
    setAddress(null);
    document.title = "Pagemill";
    arrange();
    cards.focus(id);
  },
});

let olderCursor = null;
let olderShown = false;
let trouble = null;
let timer = null;

installKeys();
installKeyDialog();
installUploads((doc) => {
  cards.update(doc);
  if (!address().id) go(doc.id);
  refresh();
});
byId("more").addEventListener("click", showOlder);
byId("help-button").addEventListener("click", () => byId("help-dialog").showModal());
window.addEventListener("hashchange", arrange);
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && refresh());
arrange();
showInfo();
refresh();

/** Show a document; an address of its own, so that reload and links lead back to it. */
function go(id) {
  location.hash = `#/${id}`;
}

function address() {
  const [, id, page] = /^#\/([\w-]+)(?:\/(\d+))?$/.exec(location.hash) ?? [];
  return { id: id ?? null, page: page ? Number(page) : null };
}

function setAddress(id, page) {
  const hash = id ? `#/${id}${page ? `/${page}` : ""}` : "";
  if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname + location.search);
  cards.select(id);
}

function arrange() {
  const { id, page } = address();
  cards.select(id);
  byId("main").classList.toggle("reading", Boolean(id));
  byId("welcome").hidden = Boolean(id);
  if (id) viewer.open(id, page);
  else viewer.close();
}

async function stop(doc) {
  try {
    const response = await service.cancel(doc.id);
    if (response.status !== 204) cards.update({ ...doc, ...(await response.json()) });
    say(`${doc.name}: cancelling`);
  } catch (error) {
    complain(error);
  }
  refresh();
}

/** Ask for the list now, and again after a while: often while something is in work. */
async function refresh() {
  clearTimeout(timer);
  timer = null;
  try {
    const { documents, next_cursor: cursor } = await service.documents(null);
    if (!olderShown) {
      olderCursor = cursor;
      byId("more").hidden = !cursor;
    }
    cards.show(documents, !cursor);
    if (trouble) withdraw(trouble);
    trouble = null;
  } catch (error) {
    if (error.message !== trouble?.message) complain(error);
    trouble = error;
  }
  clearTimeout(timer);
  if (document.visibilityState === "visible") timer = setTimeout(refresh, cards.live ? BUSY_MS : IDLE_MS);
}

async function showOlder() {
  olderShown = true;
  try {
    const { documents, next_cursor: cursor } = await service.documents(olderCursor);
    cards.show(documents, false);
    olderCursor = cursor;
    byId("more").hidden = !cursor;
  } catch (error) {
    complain(error);
  }
}

async function showInfo() {
  try {
    const info = await service.info();
    byId("version").textContent = `Pagemill ${info.versions.pagemill ?? ""}`;
    byId("key-button").hidden = !info.authentication;
  } catch {
    // The list says what is wrong.
  }
}

function installKeyDialog() {
  const dialog = byId("key-dialog");
  const ask = (message) =>
    new Promise((resolve) => {
      byId("key-message").textContent = message || "This service asks for a key.";
      byId("key-input").value = "";
      byId("key-button").hidden = false;
      dialog.returnValue = "";
      if (!dialog.open) dialog.showModal();
      dialog.addEventListener("close", () => resolve(dialog.returnValue || null), { once: true });
    });
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close(byId("key-input").value.trim());
  });
  byId("key-cancel").addEventListener("click", () => dialog.close(""));
  byId("key-button").addEventListener("click", async () => {
    const key = await ask("The key that the next requests are sent with.");
    if (!key) return;
    service.useKey(key);
    showInfo();
    refresh();
  });
  service.onKeyNeeded(ask);
}

function installKeys() {
  const viewing = {
    ArrowLeft: () => viewer.step(-1),
    ArrowRight: () => viewer.step(1),
    Home: () => viewer.step(-Infinity),
    End: () => viewer.step(Infinity),
    b: () => viewer.toggleBoxes(),
    m: () => viewer.toggleSource(),
    Escape: () => viewer.close(),
  };
  const always = { u: () => byId("files").click(), "?": () => byId("help-dialog").showModal() };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input, select, textarea, dialog[open]")) return;
    const act = (address().id && viewing[event.key]) || always[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
