// Every page of a document as a cell that fills when the page is finished; one of them is chosen.

import { make } from "./dom.js";

export class PageMap {
  /** `choose(page)` is called when the user picks a cell. */
  constructor(root, choose) {
    this.root = root;
    this.cells = new Map();
    this.chosen = null;
    root.addEventListener("click", (event) => {
      const cell = event.target.closest(".cell");
      if (cell) choose(Number(cell.dataset.page));
    });
  }

  clear() {
    this.root.replaceChildren();
    this.cells.clear();
    this.chosen = null;
  }

  /** Bring the cells up to these pages, touching only those that changed. */
  show(pages) {
    const drawnBefore = this.cells.size > 0;
    const fresh = [];
    for (const page of pages) {
      let cell = this.cells.get(page.page);
      if (!cell) {
        cell = make("button", { type: "button", className: "cell", tabIndex: -1, role: "option", "aria-selected": "false",
                                dataset: { page: page.page } }, String(page.page));
        this.cells.set(page.page, cell);
        fresh.push(cell);
      }
      const state = page.state === "done" && page.warnings?.length ? "warned" : page.state;
      if (cell.dataset.state === state) continue;
      if (drawnBefore && page.state !== "queued") cell.classList.add("fresh");
      cell.dataset.state = state;
      cell.setAttribute("aria-label", `Page ${page.page}, ${SPOKEN[state] ?? state}`);
      cell.title = page.error?.message ?? "";
    }
    this.root.append(...fresh);
  }

  choose(page, { focus = false } = {}) {
    const before = this.cells.get(this.chosen);
    before?.setAttribute("aria-selected", "false");
    if (before) before.tabIndex = -1;
    this.chosen = page;
    const cell = this.cells.get(page);
    if (!cell) return;
    cell.setAttribute("aria-selected", "true");
    cell.tabIndex = 0;
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (focus || this.root.contains(document.activeElement)) cell.focus({ preventScroll: true });
  }
}

const SPOKEN = { queued: "not finished yet", done: "finished", warned: "finished with a warning", failed: "failed" };
