// Which piece of the rendered text belongs to which block of the page.
//
// The Markdown is made of the blocks, in their order, but not one to one: running headers are left out, items
// become one list, a paragraph may be joined. So pieces and blocks are aligned, in order, by the words they share.

const NAMES = {
  doc_title: ["title", "Title"],
  paragraph_title: ["title", "Heading"],
  title: ["title", "Heading"],
  table: ["table", "Table"],
  image: ["picture", "Picture"],
  image_block: ["picture", "Picture"],
  chart: ["picture", "Chart"],
  equation: ["formula", "Formula"],
  interline_equation: ["formula", "Formula"],
  list: ["text", "List"],
  code: ["text", "Code"],
  caption: ["text", "Caption"],
  ref_text: ["text", "Reference"],
  footnote: ["text", "Footnote"],
  page_footnote: ["furniture", "Page footnote"],
  header: ["furniture", "Page header"],
  footer: ["furniture", "Page footer"],
  page_number: ["furniture", "Page number"],
  aside_text: ["furniture", "Margin"],
};
const NOT_IN_TEXT = new Set(["header", "footer", "page_number", "page_footnote", "aside_text"]);
const ENOUGH = 0.5;

/** [kind for colours, name for people] of a block. */
export function describe(block) {
  return NAMES[block.type] ?? ["text", "Text"];
}

/** The block's words as a person would read them, shortened. */
export function excerpt(block, length = 140) {
  const text = plainText(block).replace(/\s+/g, " ").trim();
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

/**
 * For each element the index of its block, or -1.
 * The alignment with the most shared words among those that keep both orders; several elements may share a block.
 */
export function align(elements, blocks) {
  const right = blocks.map((block) => ({
    words: NOT_IN_TEXT.has(block.type) ? [] : wordsOf(plainText(block)),
    picture: fileName(block.image ?? block.image_path),
  }));
  const left = elements.map((element) => ({
    words: wordsOf(textOf(element)),
    pictures: [element, ...element.querySelectorAll("img")].map((image) => fileName(image.dataset?.src)),
  }));
  // best[i][j]: of the first i elements and the first j blocks.
  const best = [Array(right.length + 1).fill(0)];
  const took = [null];
  for (let i = 1; i <= left.length; i++) {
    best.push([0]);
    took.push([false]);
    for (let j = 1; j <= right.length; j++) {
      const score = likeness(left[i - 1], right[j - 1]);
      const skip = Math.max(best[i - 1][j], best[i][j - 1]);
      // From best[i - 1][j], not from best[i - 1][j - 1]: the block stays available for the next element.
      const take = score >= ENOUGH ? best[i - 1][j] + score * weight(left[i - 1]) : 0;
      best[i].push(Math.max(skip, take));
      took[i].push(take > skip);
    }
  }
  const result = Array(left.length).fill(-1);
  let j = right.length;
  for (let i = left.length; i > 0 && j > 0; ) {
    if (took[i][j]) {
      result[i - 1] = j - 1;
      i--;
    } else if (best[i][j] === best[i][j - 1]) {
      j--;
    } else {
      i--;
    }
  }
  return result;
}

function weight(piece) {
  return 1 + Math.log1p(piece.words.length);
}

/** The share of the element's words that the block has, lowered a little where the block has many more. */
function likeness(piece, block) {
  if (block.picture && piece.pictures.includes(block.picture)) return 1;
  if (!piece.words.length || !block.words.length) return 0;
  const counts = new Map();
  for (const word of block.words) counts.set(word, (counts.get(word) ?? 0) + 1);
  let shared = 0;
  for (const word of piece.words) {
    const left = counts.get(word) ?? 0;
    if (left > 0) {
      shared++;
      counts.set(word, left - 1);
    }
  }
  return 0.85 * (shared / piece.words.length) + 0.15 * (shared / block.words.length);
}

function wordsOf(text) {
  const words = text.normalize("NFKC").toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  // Scripts without spaces give one long word: take their characters.
  return words.flatMap((word) => (/[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]/.test(word) ? [...word] : [word])).slice(0, 600);
}

/** Cells of a table stand apart, which `textContent` forgets. */
function textOf(element) {
  const cells = [...element.querySelectorAll("td, th")];
  return cells.length ? cells.map((cell) => cell.textContent).join(" ") : element.textContent;
}

function plainText(value) {
  if (typeof value === "string") return value.replace(/<[^>]*>/g, " ");
  if (Array.isArray(value)) return value.map(plainText).join(" ");
  if (value && typeof value === "object") return plainText(value.content ?? value.blocks ?? value.items ?? "");
  return "";
}

function fileName(path) {
  return path ? path.split(/[?#]/)[0].split("/").pop() : undefined;
}
