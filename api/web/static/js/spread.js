// One page: its picture with boxes on the left, its text on the right, and what belongs together.

import { align, describe, excerpt } from "./blocks.js";
import { byId, complain, make } from "./dom.js";
import { render } from "./markdown.js";
import * as service from "./service.js";

const WIDTHS = [800, 1200, 1600, 2000];
const LOW = 0.03;

export class Spread {
  constructor() {
    this.sheet = byId("sheet");
    this.image = byId("page-image");
    this.boxes = byId("boxes");
    this.prose = byId("rendered");
    this.source = byId("source");
    this.abort = new AbortController();
    this.addresses = [];
    this.active = -1;
    this.pinned = false;
    this.pieces = [];
    this.boxes.addEventListener("keydown", (event) => this.#walk(event));
    this.boxes.addEventListener("focus", () => this.active < 0 && this.#activate(0, { scroll: true }));
    this.boxes.addEventListener("blur", () => this.pinned || this.#activate(-1));
    for (const [root, scroll] of [[this.boxes, "text"], [this.prose, "image"]]) {
      root.addEventListener("pointerover", (event) => {
        const piece = event.target.closest("[data-block]");
        if (event.pointerType === "touch" || !root.contains(piece)) return;
        this.pinned = false;
        this.#activate(Number(piece.dataset.block), { scroll });
      });
      root.addEventListener("pointerleave", (event) => {
        if (event.pointerType !== "touch" && !this.pinned) this.#activate(-1);
      });
      root.addEventListener("click", (event) => this.#jump(event, scroll));
    }
  }

  /** Forget the page that is shown. */
  clear(note = "") {
    this.abort.abort();
    this.abort = new AbortController();
    for (const address of this.addresses.splice(0)) URL.revokeObjectURL(address);
    this.image.hidden = true;
    this.image.removeAttribute("src");
    this.sheet.classList.remove("waiting");
    this.boxes.replaceChildren();
    this.prose.replaceChildren();
    this.source.textContent = "";
    this.pieces = [];
    this.active = -1;
    this.pinned = false;
    byId("image-note").textContent = "";
    byId("text-note").textContent = note;
  }

  /** Show the picture of a page; there may be no text yet. */
  async showImage(doc, number) {
    const signal = this.abort.signal;
    const wanted = this.sheet.clientWidth * window.devicePixelRatio;
    const width = WIDTHS.find((candidate) => candidate >= wanted) ?? WIDTHS.at(-1);
    this.sheet.classList.add("waiting");
    try {
      const path = service.pageImagePath(doc.id, number, width);
      const address = await this.#load(path, signal);
      await new Promise((resolve, reject) => {
        this.image.onload = resolve;
        this.image.onerror = () => reject(new Error("The picture of the page cannot be shown."));
        this.image.src = address;
      });
      if (signal.aborted) return;
      this.image.alt = `Page ${number} of ${doc.name}`;
      this.image.hidden = false;
    } catch (error) {
      if (!signal.aborted) byId("image-note").textContent = error.message;
    } finally {
      if (!signal.aborted) this.sheet.classList.remove("waiting");
    }
  }

  /** Show the text and the boxes of a finished page. */
  showText(doc, page) {
    byId("text-note").textContent = page.markdown.trim() ? "" : "This page has no text.";
    this.sheet.style.setProperty("--ratio", page.width_pt / page.height_pt);
    this.source.textContent = page.markdown;
    const fragment = render(page.markdown);
    const elements = [...fragment.children].flatMap((element) =>
      /^(UL|OL)$/.test(element.tagName) ? [...element.children] : [element]);
    const owners = align(elements, page.blocks);
    elements.forEach((element, index) => {
      if (owners[index] < 0) return;
      element.classList.add("linked");
      element.dataset.block = owners[index];
    });
    this.#showPictures(doc, fragment);
    this.prose.replaceChildren(fragment);
    this.boxes.replaceChildren(...page.blocks.map((block, index) => box(block, index)).filter(Boolean));
    this.pieces = page.blocks.map((_, index) => ({
      box: this.boxes.querySelector(`[data-block="${index}"]`),
      elements: elements.filter((__, position) => owners[position] === index),
    }));
  }

  /** Pictures of this document load from the service; those of other places are left out. */
  #showPictures(doc, fragment) {
    const signal = this.abort.signal;
    for (const image of fragment.querySelectorAll("img")) {
      const name = /^(?:\.\/)?images\/([A-Za-z0-9_][A-Za-z0-9._-]*)$/.exec(image.dataset.src ?? "")?.[1];
      if (!name) {
        image.replaceWith(make("span", { className: "muted" }, image.alt || "[picture]"));
        continue;
      }
      image.loading = "lazy";
      this.#load(`documents/${encodeURIComponent(doc.id)}/images/${name}`, signal)
        .then((address) => (image.src = address))
        .catch(complain);
    }
  }

  /** An address for an <img>: the service's own, or of a copy where a key is needed, which an <img> does not send. */
  async #load(path, signal) {
    const direct = service.directUrl(path);
    if (direct) return direct;
    const address = URL.createObjectURL(await service.blob(path, { signal }));
    if (signal.aborted) URL.revokeObjectURL(address);
    else this.addresses.push(address);
    return address;
  }

  #activate(index, { scroll } = {}) {
    if (index === this.active) return;
    for (const [which, on] of [[this.active, false], [index, true]]) {
      const piece = this.pieces[which];
      if (!piece) continue;
      piece.box?.classList.toggle("on", on);
      piece.box?.setAttribute("aria-selected", String(on));
      for (const element of piece.elements) element.classList.toggle("on", on);
    }
    this.active = this.pieces[index] ? index : -1;
    const piece = this.pieces[index];
    if (piece?.box) this.boxes.setAttribute("aria-activedescendant", piece.box.id);
    else this.boxes.removeAttribute("aria-activedescendant");
    if (scroll && scroll !== "image") reveal(piece?.elements[0], byId("text-pane"));
    if (scroll && scroll !== "text") reveal(piece?.box, byId("image-pane"));
  }

  #walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !this.pieces.length) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(this.pieces.length - 1, this.active + step));
    this.#activate(next, { scroll: "both" });
  }

  /** On narrow screens one side is shown at a time: a tap on a box leads to its text, and back. */
  #jump(event, to) {
    const piece = event.target.closest("[data-block]");
    if (!piece || event.target.closest("a") || String(getSelection())) return;
    const spread = byId("spread");
    if (getComputedStyle(byId(to === "text" ? "text-pane" : "image-pane")).display === "none") {
      spread.dataset.side = to;
      spread.dispatchEvent(new Event("side"));
    }
    // What was clicked stays marked when the pointer leaves, or when its side is not shown any more.
    this.pinned = true;
    this.#activate(-1);
    this.#activate(Number(piece.dataset.block), { scroll: to });
  }
}

function box(block, index) {
  const [x0, y0, x1, y1] = block.bbox ?? [];
  if (!(x1 > x0 && y1 > y0)) return null;
  const [kind, name] = describe(block);
  const element = make("div", { id: `block-${index}`, className: "box", role: "option", "aria-selected": "false",
                                dataset: { block: index, kind, label: name } });
  const words = excerpt(block);
  element.setAttribute("aria-label", words ? `${name}: ${words}` : name);
  if (y0 < LOW) element.classList.add("low");
  // A little air around the letters.
  Object.assign(element.style, {
    left: `calc(${100 * x0}% - 4px)`, top: `calc(${100 * y0}% - 2px)`,
    width: `calc(${100 * (x1 - x0)}% + 8px)`, height: `calc(${100 * (y1 - y0)}% + 4px)`,
  });
  return element;
}

/** Scroll within the pane only as far as needed, and only if the pane scrolls. */
function reveal(element, pane) {
  if (!element || pane.scrollHeight <= pane.clientHeight) {
    if (element && getComputedStyle(pane).overflowY === "visible") element.scrollIntoView({ block: "center" });
    return;
  }
  const inner = element.getBoundingClientRect();
  const outer = pane.getBoundingClientRect();
  if (inner.top < outer.top + 12 || inner.bottom > outer.bottom - 12) {
    pane.scrollBy({ top: inner.top - outer.top - outer.height / 3, behavior: "smooth" });
  }
}
