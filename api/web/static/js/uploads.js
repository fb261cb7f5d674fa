// Files dropped, chosen or pasted: sent a few at a time, each with its own progress and its own error.

import { byId, bytes, make, say } from "./dom.js";
import * as service from "./service.js";

const AT_ONCE = 3;

/** `accepted(document)` is called for each file that the service took. */
export function installUploads(accepted) {
  const form = byId("upload");
  const input = byId("files");
  const waiting = [];
  let sending = 0;

  const add = (files) => {
    for (const file of files) waiting.push(entry(file, optionsOf(form)));
    next();
  };
  const next = () => {
    while (sending < AT_ONCE && waiting.length) {
      sending++;
      send(waiting.shift(), accepted).finally(() => {
        sending--;
        next();
      });
    }
  };

  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("change", () => {
    add(input.files);
    input.value = "";
  });
  document.addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) add(event.clipboardData.files);
  });
  // Anywhere on the page: a file that misses the frame must not replace the page.
  let depth = 0;
  const carriesFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  document.addEventListener("dragenter", (event) => carriesFiles(event) && form.classList.toggle("over", ++depth > 0));
  document.addEventListener("dragleave", (event) => {
    if (carriesFiles(event)) form.classList.toggle("over", (depth = Math.max(0, depth - 1)) > 0);
  });
  document.addEventListener("dragover", (event) => carriesFiles(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    depth = 0;
    form.classList.remove("over");
    add(event.dataTransfer.files);
  });
}

function optionsOf(form) {
  const { route, quality, pages, password, force } = form.elements;
  return {
    route: route.value,
    quality: quality.value,
    pages: pages.value.trim(),
    password: password.value,
    force: force.checked ? "true" : "",
  };
}

function entry(file, options) {
  const about = make("span", { className: "about" }, `${bytes(file.size)}, waiting`);
  const fill = make("span");
  const act = make("button", { type: "button", className: "quiet act" }, "Stop");
  act.setAttribute("aria-label", `Stop sending ${file.name}`);
  const row = make("li", { className: "card" }, make("strong", {}, file.name), about, act, make("div", { className: "bar" }, fill));
  const abort = new AbortController();
  act.addEventListener("click", () => {
    abort.abort();
    row.remove();
  });
  byId("uploads").append(row);
  return { file, options, row, about, fill, act, abort };
}

async function send({ file, options, row, about, fill, act, abort }, accepted) {
  if (abort.signal.aborted) return;
  try {
    const doc = await service.upload(
      file,
      options,
      (fraction) => {
        fill.style.width = `${100 * fraction}%`;
        about.textContent = fraction < 1 ? `${bytes(file.size)}, ${Math.round(100 * fraction)} % sent` : "Being checked in";
      },
      abort.signal,
    );
    row.remove();
    say(`${file.name} was accepted`);
    accepted(doc);
  } catch (error) {
    if (error.name === "AbortError") return;
    row.querySelector(".bar").remove();
    about.textContent = error.message;
    about.className = "notice bad";
    act.textContent = "Dismiss";
    act.setAttribute("aria-label", `Dismiss ${file.name}`);
    say(`${file.name} was refused: ${error.message}`);
  }
}
