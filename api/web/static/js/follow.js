// Keeps one document up to date: events as they come, and where no stream gets through, questions now and then.

import * as service from "./service.js";
import { finished } from "./states.js";

const FIRST_PAUSE_MS = 1000;
const SHORT_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 8000;
const ORDER = ["queued", "preparing", "running", "assembling", "cancelling"];
const ASK = "ask";
const CHANGED = "changed";

/**
 * Call `changed(document)` now and after each change, until the document is finished or `signal` aborts.
 * `gone()` is called if it was removed, `troubled(error)` if something is wrong that waiting does not cure.
 */
export async function follow(id, { changed, gone, troubled }, signal) {
  let last = null;
  let pause = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    try {
      let doc = await service.documentById(id);
      if (signal.aborted) return;
      changed(doc);
      if (finished(doc.state)) return;
      for await (const event of service.events(id, last, signal)) {
        last = event.id ?? last;
        pause = FIRST_PAUSE_MS;
        const news = apply(doc, event);
        if (news === ASK) doc = await service.documentById(id);
        if (signal.aborted) return;
        if (news) changed(doc);
      }
      // The stream ended: by the document's end, which the next answer shows, or by a restart of the service.
      await rest(last ? SHORT_PAUSE_MS : pause, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 404) return gone();
      if (error.status && error.status < 500 && error.status !== 429) return troubled(error);
      await rest(error.retryAfter ? error.retryAfter * 1000 : pause, signal);
      pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    }
  }
}

/**
 * Bring the document up to an event. The first stream tells everything from the beginning, so an event may be older
 * than the document: it never takes back what the document already shows.
 */
function apply(doc, { event, page, state, route, error_code: code, error }) {
  if (event === "retried" || (event === "opened" && !doc.pages?.length)) return ASK;
  if (event === "page") {
    const known = doc.pages?.find((other) => other.page === page);
    if (!known) return ASK;
    const before = [known.state, doc.pages_done, doc.pages_failed].join();
    if (known.state !== "done" && known.state !== state) {
      Object.assign(known, { state, route, error: code ? { code, message: error ?? "" } : null });
    }
    // Counted anew: a page may have ended between the answer's counts and its list of pages.
    doc.pages_done = doc.pages.filter((other) => other.state === "done").length;
    doc.pages_failed = doc.pages.filter((other) => other.state === "failed").length;
    return before === [known.state, doc.pages_done, doc.pages_failed].join() ? null : CHANGED;
  }
  const rank = ORDER.indexOf(event === "opened" ? "running" : event);
  if (rank <= ORDER.indexOf(doc.state)) return null;
  doc.state = ORDER[rank];
  return CHANGED;
}

function rest(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
