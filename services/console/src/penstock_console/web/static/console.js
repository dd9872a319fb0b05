// Refreshes live pages, follows new records, and sizes the strip of extents. Pages work without it.
"use strict";

const REFRESH_MS = 5000;
const TAIL_ROWS_MAX = 500;
const SHORT_TEXT_MAX = 160; // as in parts.html
const SUMMARY_TEXT_MAX = 300;
const LAST_MS = Date.UTC(9999, 11, 31, 23, 59, 59); // as in the times of pages

// Changes a tree into another one. Elements that stay keep the focus, the text of the user, and whether they are open.
function patch(old, next) {
  const olds = [...old.childNodes];
  const nexts = [...next.childNodes];
  nexts.forEach((each, index) => {
    const found = olds[index];
    if (!found) old.append(each);
    else if (found.nodeName !== each.nodeName) found.replaceWith(each);
    else if (found.nodeType === Node.ELEMENT_NODE) patchElement(found, each);
    else if (found.data !== each.data) found.data = each.data;
  });
  olds.slice(nexts.length).forEach((each) => each.remove());
}

function patchElement(old, next) {
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  patch(old, next);
}

function show(main, next) {
  const held = document.activeElement;
  const href = main.contains(held) ? held.getAttribute("href") : null;
  next.querySelector(".note").replaceWith(main.querySelector(".note").cloneNode(true)); // it is shown once
  patch(main, next);
  // A row may have moved: the focus goes with it.
  if (href && (document.activeElement !== held || held.getAttribute("href") !== href)) {
    main.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
  }
}

async function refresh(main) {
  const offline = document.getElementById("offline");
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected) return location.reload(); // the login has ended
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.ok) show(main, page.getElementById("content"));
    offline.hidden = answer.ok;
  } catch {
    offline.hidden = false;
  }
}

function keepFresh(main) {
  const button = document.getElementById("pause");
  let isPaused = false;
  button.hidden = false;
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Refresh again" : "Pause";
  });
  const turn = async () => {
    if (!isPaused && !document.hidden) await refresh(main);
    setTimeout(turn, REFRESH_MS);
  };
  setTimeout(turn, REFRESH_MS);
}

function made(name, text, className = "") {
  const element = document.createElement(name);
  element.textContent = text;
  element.className = className;
  return element;
}

function field(text, format) {
  if (text === null) return made("span", "null", "null");
  if (format !== "json" && text.length <= SHORT_TEXT_MAX && !text.includes("\n")) return made("code", text);
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.append(made("code", text.slice(0, SUMMARY_TEXT_MAX).replace(/\s+/g, " ")));
  details.append(summary, made("pre", text));
  return details;
}

function addSchema(cell, schema, error) {
  if (schema) {
    const tag = made("span", `${schema.name || schema.type} #${schema.id}`, "tag");
    tag.title = schema.type;
    cell.append(" ", tag);
  }
  if (error) cell.append(" ", made("span", error, "state bad"));
}

// As on the page: producers may write any number, and `toISOString` fails for large ones.
function timeText(ms) {
  if (ms < 0) return "-";
  return ms > LAST_MS ? "never" : new Date(ms).toISOString().slice(0, -1).replace("T", " ");
}

function showRecord(body, record) {
  const row = body.insertRow(0);
  row.className = "fresh";
  const place = made("th", `${record.partition}@${record.offset}`, "place");
  place.scope = "row";
  row.append(place);
  row.append(made("td", timeText(record.time_ms), "time"));
  const key = row.insertCell();
  key.append(field(record.key, record.key_format));
  addSchema(key, record.key_schema, record.key_error);
  const value = row.insertCell();
  value.append(field(record.value, record.value_format));
  if (record.value_format === "hex") value.append(" ", made("span", "hex", "tag"));
  if (record.is_cut) value.append(" ", made("span", "cut", "tag"));
  addSchema(value, record.value_schema, record.value_error);
  for (const { name, value: text } of record.headers) {
    const tag = made("span", text === null ? `${name} ` : `${name}=${text}`, "tag");
    if (text === null) tag.append(made("span", "null", "null"));
    value.append(" ", tag);
  }
  if (record.headers_left) value.append(" ", made("span", `${record.headers_left} more headers`, "tag"));
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
  const start = () => {
    const wanted = new FormData(button.form);
    const given = new URLSearchParams();
    for (const name of ["partition", "filter"]) if (wanted.get(name)) given.set(name, wanted.get(name));
    document.querySelectorAll("#no-messages, #next-messages").forEach((each) => each.remove());
    body.replaceChildren();
    count = 0;
    button.textContent = "Stop";
    state.textContent = "live: waiting for new records";
    source = new EventSource(`${button.dataset.tail}?${given}`);
    source.onmessage = (event) => {
      const records = JSON.parse(event.data);
      records.forEach((each) => showRecord(body, each));
      count += records.length;
      if (records.length) state.textContent = `live: ${count} new records`;
    };
    source.addEventListener("end", () => stop(`${count} new records; the time is over`));
    source.onerror = () => stop("no new records come: press Read for the reason, or Live to try again");
  };
  button.addEventListener("click", () => (source ? stop(`${count} new records; stopped`) : start()));
}

function forgetDone() {
  const address = new URL(location.href);
  if (!address.searchParams.has("done")) return;
  address.searchParams.delete("done");
  history.replaceState(null, "", address);
}

document.querySelectorAll(".strip [data-grow]").forEach((each) => {
  each.style.flexGrow = Math.max(1, Math.log2(1 + Number(each.dataset.grow)));
});
// Without the script all widths are equal.
document.querySelectorAll(".legend .scale").forEach((each) => {
  each.hidden = false;
});
document.querySelectorAll("[data-tail]").forEach(follow);
forgetDone();
const live = document.querySelector("main[data-live]");
if (live) keepFresh(live);
