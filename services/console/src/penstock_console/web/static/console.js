// Refreshes live pages, follows new records, and sizes the strip of extents. Pages work without it.
"use strict";

const REFRESH_MS = 5000;
const TAIL_ROWS_MAX = 500;

function isBusy(main) {
  return document.hidden || main.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")
    || main.querySelector("details[open]") !== null;
}

async function refresh(main) {
  if (!isBusy(main)) {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const next = page.getElementById("content");
        if (next && !isBusy(main)) {
          next.querySelectorAll(".done").forEach((each) => each.remove());
          main.replaceChildren(...next.childNodes);
          document.body.classList.remove("offline");
        }
      }
    } catch {
      document.body.classList.add("offline");
    }
  }
  setTimeout(() => refresh(main), REFRESH_MS);
}

function cell(row, text, name) {
  const made = row.insertCell();
  if (name) made.className = name;
  if (text === null) {
    const none = document.createElement("span");
    none.className = "null";
    none.textContent = "null";
    made.append(none);
  } else {
    const code = document.createElement("code");
    code.textContent = text.length > 400 ? `${text.slice(0, 400)}...` : text;
    made.append(code);
  }
  return made;
}

function showRecord(body, record) {
  const row = body.insertRow(0);
  row.className = "fresh";
  cell(row, `${record.partition}@${record.offset}`, "place");
  cell(row, new Date(record.time_ms).toISOString(), "time");
  cell(row, record.key);
  const value = cell(row, record.value);
  for (const header of record.headers) {
    const tag = document.createElement("span");
    tag.className = "tag";
    tag.textContent = `${header.name}=${header.value}`;
    value.append(" ", tag);
  }
  while (body.rows.length > TAIL_ROWS_MAX) body.deleteRow(-1);
}

function follow(button) {
  const state = document.getElementById("tail-state");
  const body = document.getElementById("messages");
  let source = null;
  let count = 0;
  const stop = (text) => {
    source.close();
    source = null;
    button.textContent = "Live";
    state.textContent = text;
  };
  button.addEventListener("click", () => {
    if (source) return stop(`${count} new records; stopped`);
    document.getElementById("no-messages")?.remove();
    body.replaceChildren();
    count = 0;
    button.textContent = "Stop";
    state.textContent = "waiting for new records";
    source = new EventSource(button.dataset.tail);
    source.onmessage = (event) => {
      for (const record of JSON.parse(event.data)) {
        showRecord(body, record);
        count += 1;
      }
      state.textContent = `live: ${count} new records`;
    };
    source.addEventListener("end", () => stop(`${count} new records; the time is over`));
    source.onerror = () => stop("the console does not send records: see its log, or try again");
  });
}

document.querySelectorAll(".strip [data-grow]").forEach((each) => {
  each.style.flexGrow = Math.max(1, Math.log2(1 + Number(each.dataset.grow)));
});
document.querySelectorAll("[data-tail]").forEach(follow);
const live = document.querySelector("main[data-live]");
if (live) setTimeout(() => refresh(live), REFRESH_MS);
