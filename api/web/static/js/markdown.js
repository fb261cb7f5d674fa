// Markdown to elements. The text comes from documents of strangers: nothing of it may run, and nothing of it may
// make the browser ask another host.

import { marked } from "../vendor/marked.js";
import DOMPurify from "../vendor/purify.js";

const TAGS = [
  "h1", "h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong",
  "b", "i", "u", "s", "del", "sub", "sup", "a", "img", "div", "span",
  "table", "thead", "tbody", "tfoot", "tr", "th", "td", "caption", "colgroup", "col",
];
const ATTRIBUTES = ["colspan", "rowspan", "align", "start", "alt", "href", "src"];

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "IMG") {
    // Not loaded from where the text says: the caller decides, by name.
    node.dataset.src = node.getAttribute("src") ?? "";
    node.removeAttribute("src");
  } else if (node.tagName === "A") {
    if (!/^(https?:|mailto:|#)/i.test(node.getAttribute("href") ?? "")) node.removeAttribute("href");
    node.setAttribute("rel", "noopener noreferrer nofollow");
    node.setAttribute("target", "_blank");
  }
});

/**
 * A fragment of inert elements. Pictures have no `src`, only `data-src` as the text has it. Tables that are wider
 * than the page scroll in a frame of their own.
 */
export function render(text) {
  const html = marked.parse(text, { gfm: true, async: false });
  const fragment = DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
  for (const table of fragment.querySelectorAll("table")) {
    if (table.parentElement?.closest("table")) continue;
    const frame = document.createElement("div");
    frame.className = "scroll";
    table.replaceWith(frame);
    frame.append(table);
  }
  return fragment;
}
