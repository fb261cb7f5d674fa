// One document: its head, its page map, the page that is chosen.

import { byId, complain, make, save, say } from "./dom.js";
import { follow } from "./follow.js";
import { PageMap } from "./page-map.js";
import * as service from "./service.js";
import { Spread } from "./spread.js";
import { canCancel, canRetry, className, finished, hasResult, progressText, words } from "./states.js";

const CONFIRM_MS = 4000;
const KEPT_PAGES = 40;

export class Viewer {
  /** `changed(document)`, `gone(id)` tell the list; `moved(id, page)` the address; `closed()` the frame. */
  constructor({ changed, gone, moved, closed }) {
    Object.assign(this, { changed, gone, moved, closed });
    this.doc = null;
    this.page = null;
    this.shown = null;
    this.kept = new Map();
    this.spread = new Spread();
    this.map = new PageMap(byId("page-map"), (page) => this.choose(page));
    byId("previous").addEventListener("click", () => this.step(-1));
    byId("next").addEventListener("click", () => this.step(1));
    byId("close").addEventListener("click", () => this.close());
    this.#installSwitches();
  }

  /** Show a document and keep it up to date. */
  open(id, page = null) {
    if (this.doc?.id === id || this.opening === id) {
      if (page && this.doc) this.choose(page);
      return;
    }
    this.#stop();
    this.opening = id;
    this.page = page;
    byId("viewer").hidden = false;
    byId("viewer-name").textContent = "";
    byId("viewer-actions").replaceChildren();
    this.following = new AbortController();
    this.#follow(id);
  }

  close() {
    if (!this.opening) return;
    this.#stop();
    byId("viewer").hidden = true;
    this.closed();
  }

  /** Go to a page before or after, as far as there is one. */
  step(by) {
    const pages = this.doc?.pages ?? [];
    const at = pages.findIndex((page) => page.page === this.page);
    const next = pages[Math.max(0, Math.min(pages.length - 1, at + by))];
    if (next && next.page !== this.page) this.choose(next.page);
  }

  choose(page) {
    this.page = page;
    this.map.choose(page);
    this.moved(this.doc.id, page);
    this.#drawPage();
  }

  toggleBoxes() {
    byId("boxes-button").click();
  }

  toggleSource() {
    byId(byId("source").hidden ? "show-source" : "show-rendered").click();
  }

  #stop() {
    this.following?.abort();
    this.doc = this.opening = this.page = this.shown = null;
    this.kept.clear();
    this.map.clear();
    this.spread.clear();
  }

  #follow(id) {
    const signal = this.following.signal;
    follow(
      id,
      {
        changed: (doc) => this.#show(doc),
        gone: () => {
          this.gone(id);
          this.close();
        },
        troubled: complain,
      },
      signal,
    );
  }

  #show(doc) {
    const before = this.doc;
    const fresh = before?.id !== doc.id;
    this.doc = doc;
    byId("viewer-name").textContent = doc.name;
    byId("viewer-state").textContent = words(doc.state);
    byId("viewer-state").className = className(doc.state);
    const progress = progressText(doc);
    byId("viewer-progress").textContent = progress ? `· ${progress}` : "";
    document.title = `${doc.name} – Pagemill`;
    this.#drawError();
    this.#drawActions();
    this.map.show(doc.pages ?? []);
    this.#speak(fresh);
    this.changed(doc);
    const pages = doc.pages ?? [];
    if (!pages.some((page) => page.page === this.page)) this.page = pages[0]?.page ?? null;
    if (this.page !== null) this.map.choose(this.page);
    this.#drawPage();
  }

  #speak(fresh) {
    const { name, state } = this.doc;
    const key = `${state} ${progressText(this.doc)}`;
    if (key === this.spoken && !fresh) return;
    const stateChanged = this.spokenState !== state;
    this.spoken = key;
    this.spokenState = state;
    say(`${name}: ${words(state)}${progressText(this.doc) ? `, ${progressText(this.doc)}` : ""}`,
        { soon: !(stateChanged && finished(state)) });
  }

  #drawError() {
    const note = byId("viewer-error");
    const { error } = this.doc;
    note.hidden = !error;
    if (error) note.replaceChildren(error.message || "It could not be parsed.", " ", make("code", {}, error.code));
  }

  #drawActions() {
    const { state, id } = this.doc;
    const root = byId("viewer-actions");
    if (root.dataset.for === `${id} ${state}`) return;
    root.dataset.for = `${id} ${state}`;
    const hadFocus = root.contains(document.activeElement);
    const button = (text, act, className = "", label = text) => {
      const element = make("button", { type: "button", className, title: label, "aria-label": label }, text);
      element.addEventListener("click", () => act(element));
      return element;
    };
    root.replaceChildren(
      ...[
        hasResult(state) && button("↓ Markdown", (b) => this.#download("md", ".md", b), "primary", "Download Markdown"),
        hasResult(state) && button("↓ ZIP", (b) => this.#download("zip", ".zip", b), "", "Download everything as ZIP"),
        hasResult(state) && button("↓ JSON", (b) => this.#download("json", ".json", b), "", "Download JSON"),
        canRetry(state) && button("Retry", () => this.#act(service.retry)),
        canCancel(state) && button("Cancel", () => this.#act(service.cancel), "danger"),
        finished(state) && button("Remove", (b) => this.#remove(b), "quiet danger"),
      ].filter(Boolean),
    );
    if (hadFocus) (root.firstElementChild ?? byId("viewer-name")).focus();
  }

  async #act(call) {
    const id = this.doc.id;
    try {
      await call(id);
      this.following?.abort();
      this.following = new AbortController();
      if (this.doc?.id === id) this.#follow(id);
    } catch (error) {
      complain(error);
    }
  }

  async #remove(button) {
    if (!button.dataset.sure) {
      button.dataset.sure = "yes";
      button.textContent = "Remove for good?";
      button.setAttribute("aria-label", "Remove for good?");
      setTimeout(() => {
        delete button.dataset.sure;
        button.textContent = "Remove";
        button.setAttribute("aria-label", "Remove");
      }, CONFIRM_MS);
      return;
    }
    const { id, name } = this.doc;
    try {
      await service.remove(id);
      say(`${name} was removed`);
      this.gone(id);
      this.close();
    } catch (error) {
      complain(error);
    }
  }

  async #download(format, suffix, button) {
    const { id, name } = this.doc;
    const target = `${name.replace(/\.(pdf|png|jpe?g|tiff?)$/i, "")}${suffix}`;
    const path = service.resultPath(id, format);
    button.disabled = true;
    try {
      const direct = service.directUrl(path);
      if (direct) return save(direct, target);
      const address = URL.createObjectURL(await service.blob(path));
      save(address, target);
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    } catch (error) {
      complain(error);
    } finally {
      button.disabled = false;
    }
  }

  #drawPage() {
    const pages = this.doc.pages ?? [];
    const page = pages.find((each) => each.page === this.page);
    const at = pages.indexOf(page);
    byId("previous").disabled = at <= 0;
    byId("next").disabled = at < 0 || at >= pages.length - 1;
    const number = byId("page-number");
    const count = this.doc.page_count ?? pages.length;
    number.textContent = page ? `${page.page} / ${count}` : "";
    number.setAttribute("aria-label", page ? `Page ${page.page} of ${count}` : "");
    const key = `${this.doc.id} ${this.page} ${page?.state} ${page?.state === "queued" && finished(this.doc.state)}`;
    if (key === this.shown) return;
    this.shown = key;
    this.#drawFacts(page);
    if (!page) return this.spread.clear(this.#nothingYet());
    if (page.state !== "done") {
      this.spread.clear(page.state === "failed"
        ? `This page could not be read. ${page.error?.message ?? ""}`
        : finished(this.doc.state)
          ? "This page was not read."
          : "The text appears here as soon as the page is finished.");
      this.spread.showImage(this.doc, page.page);
      return;
    }
    this.#drawFinished(page.page, key);
  }

  async #drawFinished(number, key) {
    const doc = this.doc;
    try {
      const result = await this.#result(doc.id, number);
      if (this.shown !== key) return;
      this.spread.clear();
      this.#learn(number, result);
      this.#drawFacts(result);
      this.spread.showText(doc, result);
      byId("text-pane").scrollTop = byId("image-pane").scrollTop = 0;
      await this.spread.showImage(doc, number);
    } catch (error) {
      if (this.shown !== key) return;
      this.shown = null; // so that the next change tries again
      this.spread.clear(error.message);
    }
  }

  /** Events tell that a page is finished; only its result tells why it was read so, and of warnings. */
  #learn(number, { why, seconds, warnings }) {
    const page = this.doc.pages.find((each) => each.page === number);
    if (!page) return;
    Object.assign(page, { why, seconds, warnings });
    this.map.show([page]);
  }

  async #result(id, number) {
    if (!this.kept.has(number)) {
      const result = await service.page(id, number);
      if (this.doc?.id !== id) return result;
      this.kept.set(number, result);
      if (this.kept.size > KEPT_PAGES) this.kept.delete(this.kept.keys().next().value);
    }
    return this.kept.get(number);
  }

  #drawFacts(page) {
    const facts = [];
    if (page?.route) facts.push(`Route ${page.route}`);
    if (page?.why) facts.push(page.why);
    if (typeof page?.seconds === "number") facts.push(`${page.seconds.toFixed(2)} s`);
    byId("page-facts").textContent = facts.join(" · ");
    byId("page-facts").title = facts.join(" · ");
    const warnings = page?.warnings ?? [];
    byId("page-warnings").hidden = warnings.length === 0;
    byId("page-warnings").replaceChildren(...warnings.map((text) => make("li", {}, text)));
  }

  #nothingYet() {
    return finished(this.doc.state) ? "There are no pages to show." : "The pages appear here as they are finished.";
  }

  #installSwitches() {
    const spread = byId("spread");
    const press = (id, on) => byId(id).setAttribute("aria-pressed", String(on));
    byId("boxes-button").addEventListener("click", () => {
      press("boxes-button", !spread.classList.toggle("no-boxes"));
    });
    const source = (on) => {
      byId("source").hidden = !on;
      byId("rendered").hidden = on;
      press("show-source", on);
      press("show-rendered", !on);
    };
    byId("show-source").addEventListener("click", () => source(true));
    byId("show-rendered").addEventListener("click", () => source(false));
    const side = () => {
      press("show-image", spread.dataset.side === "image");
      press("show-text", spread.dataset.side === "text");
    };
    for (const name of ["image", "text"]) {
      byId(`show-${name}`).addEventListener("click", () => {
        spread.dataset.side = name;
        side();
      });
    }
    spread.addEventListener("side", side);
  }
}
