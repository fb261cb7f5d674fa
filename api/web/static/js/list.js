// The list of documents: one card each, kept in the order of the service (newest first).

import { byId, make, plural } from "./dom.js";
import { canCancel, className, finished, fraction, progressText, words } from "./states.js";

export class DocumentCards {
  /** `open(id)` shows a document, `cancel(document)` stops one. */
  constructor({ open, cancel }) {
    this.root = byId("documents");
    this.open = open;
    this.cancel = cancel;
    this.documents = new Map();
    this.cards = new Map();
    this.selected = null;
    this.root.addEventListener("keydown", (event) => this.#move(event));
  }

  get live() {
    return [...this.documents.values()].some((doc) => !finished(doc.state));
  }

  /** Show these documents; `complete` if there are no others. */
  show(documents, complete) {
    const kept = new Set(documents.map((doc) => doc.id));
    if (complete) for (const id of [...this.documents.keys()]) if (!kept.has(id)) this.remove(id);
    for (const doc of documents) this.update(doc);
    this.#summarise();
  }

  update(doc) {
    const fresh = !this.documents.has(doc.id);
    this.documents.set(doc.id, doc);
    if (fresh) this.#insert(doc);
    this.#draw(doc);
    this.#summarise();
  }

  remove(id) {
    const card = this.cards.get(id);
    if (card?.row.contains(document.activeElement)) byId("documents-title").focus();
    card?.row.remove();
    this.cards.delete(id);
    this.documents.delete(id);
    this.#summarise();
  }

  select(id) {
    this.selected = id;
    for (const [other, card] of this.cards) this.#mark(other, card);
  }

  focus(id) {
    this.cards.get(id)?.name.focus();
  }

  #insert(doc) {
    const name = make("button", { type: "button", className: "open" });
    const about = make("p", { className: "about" });
    const act = make("button", { type: "button", className: "quiet act" }, "Cancel");
    const fill = make("span");
    const bar = make("div", { className: "bar", role: "progressbar", "aria-valuemin": 0 }, fill);
    const row = make("li", { className: "card", dataset: { id: doc.id } }, name, about, act, bar);
    name.addEventListener("click", () => this.open(doc.id));
    act.addEventListener("click", () => this.cancel(this.documents.get(doc.id)));
    const older = [...this.root.children].find((child) => this.documents.get(child.dataset.id)?.created_at < doc.created_at);
    this.root.insertBefore(row, older ?? null);
    this.cards.set(doc.id, { row, name, about, act, bar, fill });
  }

  #draw(doc) {
    const card = this.cards.get(doc.id);
    card.name.textContent = doc.name;
    card.name.title = doc.name;
    card.row.dataset.state = doc.state;
    const state = make("span", { className: className(doc.state) }, words(doc.state));
    const rest = doc.state === "failed" && doc.error ? doc.error.message : progressText(doc);
    card.about.replaceChildren(state, rest ? ` · ${rest}` : "");
    card.about.title = doc.error?.message ?? "";
    card.act.hidden = !canCancel(doc.state);
    card.act.setAttribute("aria-label", `Cancel ${doc.name}`);
    card.bar.hidden = finished(doc.state);
    card.bar.setAttribute("aria-label", doc.name);
    if (doc.pages_total) {
      card.bar.setAttribute("aria-valuemax", doc.pages_total);
      card.bar.setAttribute("aria-valuenow", doc.pages_done + doc.pages_failed);
    }
    card.fill.style.width = `${100 * fraction(doc)}%`;
    this.#mark(doc.id, card);
  }

  #mark(id, card) {
    card.row.classList.toggle("selected", id === this.selected);
    if (id === this.selected) card.name.setAttribute("aria-current", "true");
    else card.name.removeAttribute("aria-current");
  }

  #summarise() {
    const live = [...this.documents.values()].filter((doc) => !finished(doc.state)).length;
    byId("counts").textContent = live ? `${live} in work` : this.documents.size ? plural(this.documents.size, "document") : "";
    byId("empty").hidden = this.documents.size > 0;
  }

  #move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const row = event.target.closest("li");
    const next = step > 0 ? row?.nextElementSibling : row?.previousElementSibling;
    if (!next) return;
    event.preventDefault();
    next.querySelector(".open").focus();
  }
}
