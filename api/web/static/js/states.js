// What the states of a document mean on this page.

const FINISHED = new Set(["done", "partial", "failed", "cancelled"]);
const WORDS = {
  queued: "Queued",
  preparing: "Opening",
  running: "Reading",
  assembling: "Putting together",
  done: "Done",
  partial: "Some pages failed",
  failed: "Failed",
  cancelling: "Cancelling",
  cancelled: "Cancelled",
};

export const finished = (state) => FINISHED.has(state);
export const hasResult = (state) => state === "done" || state === "partial";
export const canCancel = (state) => !finished(state) && state !== "cancelling";
export const canRetry = (state) => state === "partial" || state === "failed" || state === "cancelled";
export const words = (state) => WORDS[state] ?? state;
export const className = (state) =>
  `state ${finished(state) ? (state === "cancelled" ? "muted" : `state-${state}`) : "state-live"}`;

/** "3 of 12 pages, 1 failed", as far as it is known. */
export function progressText(doc) {
  if (doc.pages_total === null || doc.pages_total === undefined) {
    if (doc.state === "queued" && doc.queue_position) return `${doc.queue_position} ahead`;
    return "";
  }
  const ready = doc.pages_done + doc.pages_failed;
  const total = doc.pages_total.toLocaleString("en");
  const noun = doc.pages_total === 1 ? "page" : "pages";
  const failed = doc.pages_failed ? `, ${doc.pages_failed} failed` : "";
  return ready >= doc.pages_total ? `${total} ${noun}${failed}` : `${ready.toLocaleString("en")} of ${total} ${noun}${failed}`;
}

/** The share of pages that are finished, 0..1. */
export function fraction(doc) {
  return doc.pages_total ? (doc.pages_done + doc.pages_failed) / doc.pages_total : 0;
}
