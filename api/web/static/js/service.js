// The REST interface: requests with the API key, errors as problem details, uploads with progress, event streams.

const BASE = new URL("v1/", document.baseURI);
const KEY_NAME = "pagemill-api-key";
// The service sends a comment every few seconds; a stream that is silent for longer is held up somewhere.
const SILENCE_MS = 45_000;

let askForKey = null;

/** An answer that is no success. `code` is stable, `message` is for people. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail || body?.title || `The service answered ${status}.`);
    this.status = status;
    this.code = body?.code ?? "";
    this.retryAfter = body?.retry_after ?? null;
  }
}

/** The service cannot be reached. */
export class Unreachable extends Error {
  constructor() {
    super("The service cannot be reached. Trying again.");
  }
}

/** Set what asks the user for a key: `async (message) => key or null`. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

export function hasKey() {
  return Boolean(storedKey());
}

export function useKey(key) {
  try {
    if (key) sessionStorage.setItem(KEY_NAME, key);
    else sessionStorage.removeItem(KEY_NAME);
  } catch {
    memoryKey = key;
  }
}

export const info = () => json("info");
export const documents = (cursor, limit = 50) =>
  json(`documents?limit=${limit}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
export const documentById = (id) => json(`documents/${encodeURIComponent(id)}`);
export const page = (id, number) => json(`documents/${encodeURIComponent(id)}/pages/${number}`);
export const cancel = (id) => request(`documents/${encodeURIComponent(id)}`, { method: "DELETE" });
export const remove = cancel;
export const retry = (id) => request(`documents/${encodeURIComponent(id)}/retry`, { method: "POST" });
export const pageImagePath = (id, number, width) =>
  `documents/${encodeURIComponent(id)}/pages/${number}/image?width=${width}`;
export const resultPath = (id, format) => `documents/${encodeURIComponent(id)}/result?format=${format}`;

/** Bytes of a path below `v1/`, or of an absolute path on this host. */
export async function blob(path, options) {
  return (await request(path, options)).blob();
}

/** An address that the browser itself can open; null while a key is needed, which it would not send. */
export function directUrl(path) {
  return hasKey() ? null : new URL(path, BASE).href;
}

/**
 * Send one file. `progress(fraction)` is called as it goes; abort with `signal`.
 * XMLHttpRequest, because fetch tells nothing about bytes sent.
 */
export async function upload(file, options, progress, signal) {
  // Sent again after a broken connection, the same file is the same document.
  const headers = { "Idempotency-Key": crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` };
  for (;;) {
    const key = storedKey();
    const { status, body } = await send(file, options, { ...headers, ...keyHeader(key) }, progress, signal);
    if (status >= 200 && status < 300) return body.documents[0];
    if (status === 401 && (await gotNewKey(key, body?.detail))) continue;
    throw new Problem(status, body);
  }
}

/**
 * Events of a document from `lastId` on, until the stream ends. Yields {id, event, ...data}.
 * fetch rather than EventSource, which cannot send a key.
 */
export async function* events(id, lastId, signal) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  const headers = { Accept: "text/event-stream" };
  if (lastId) headers["Last-Event-ID"] = lastId;
  try {
    const response = await request(`documents/${encodeURIComponent(id)}/events`, {
      headers,
      signal: AbortSignal.any([signal, silence.signal]),
    });
    if (!response.body) return; // 204: everything was seen
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      buffer = (buffer + value).replaceAll("\r\n", "\n");
      let end;
      while ((end = buffer.indexOf("\n\n")) >= 0) {
        const event = parseEvent(buffer.slice(0, end));
        buffer = buffer.slice(end + 2);
        if (event) yield event;
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

function parseEvent(text) {
  const fields = { id: null, event: "message", data: [] };
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    if (colon === 0) continue; // a comment
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") fields.data.push(value);
    else if (name === "id" || name === "event") fields[name] = value;
  }
  if (!fields.data.length) return null;
  return { event: fields.event, ...JSON.parse(fields.data.join("\n")), id: fields.id };
}

async function json(path, options) {
  return (await request(path, options)).json();
}

async function request(path, options = {}) {
  for (;;) {
    const key = storedKey();
    let response;
    try {
      response = await fetch(new URL(path, BASE), {
        ...options,
        headers: { ...options.headers, ...keyHeader(key) },
        credentials: "same-origin",
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Unreachable();
    }
    if (response.ok) return response;
    const body = await response.json().catch(() => null);
    if (response.status === 401 && (await gotNewKey(key, body?.detail))) continue;
    throw new Problem(response.status, body);
  }
}

function send(file, options, headers, progress, signal) {
  const form = new FormData();
  // Options first: the service reads the form as it arrives.
  for (const [name, value] of Object.entries(options)) if (value) form.append(name, value);
  form.append("files", file, file.name);
  return new Promise((resolve, reject) => {
    const call = new XMLHttpRequest();
    call.open("POST", new URL("documents", BASE));
    for (const [name, value] of Object.entries(headers)) call.setRequestHeader(name, value);
    call.responseType = "json";
    call.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
    call.onload = () => resolve({ status: call.status, body: call.response });
    call.onerror = () => reject(new Unreachable());
    call.onabort = () => reject(new DOMException("given up", "AbortError"));
    signal.addEventListener("abort", () => call.abort(), { once: true });
    call.send(form);
  });
}

let memoryKey = "";
let asking = null;

function storedKey() {
  try {
    return sessionStorage.getItem(KEY_NAME) ?? memoryKey;
  } catch {
    return memoryKey;
  }
}

function keyHeader(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/**
 * Whether there is another key than the one that was refused: typed meanwhile, or now. Asks once, however many
 * requests were refused at the same time.
 */
async function gotNewKey(refused, message) {
  if (!asking && storedKey() !== refused) return true;
  if (!askForKey) return false;
  asking ??= askForKey(message)
    .then((key) => {
      if (key) useKey(key);
      return Boolean(key);
    })
    .finally(() => (asking = null));
  return asking;
}
