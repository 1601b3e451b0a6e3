// Small comforts. Every page works without this file; only the answer of "Try it" then arrives in one piece, and a
// double click sends a form twice.
"use strict";

const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Copy buttons: hidden in the page, shown where the clipboard can be used.
for (const button of all("button[data-copy]")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  const label = button.textContent;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent.trim());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1600);
  });
}

// On a narrow screen the pages are one line, on a low one their column is cut: show the current one. Not by
// scrollIntoView, after which the Tab key goes on behind that place, past the way to the page itself.
const current = document.querySelector(".side nav [aria-current]");
if (current) {
  const line = current.closest("nav"), column = current.closest(".side");
  const place = current.getBoundingClientRect(), [around, above] = [line, column].map((each) => each.getBoundingClientRect());
  line.scrollLeft += (place.left + place.right - around.left - around.right) / 2;
  column.scrollTop += Math.max(0, place.bottom - above.bottom);
}

// Filters are sent when a choice changes. Not by keyboard, where each arrow key changes it: there the button sends them.
for (const select of all("select[data-send]")) {
  let keyed = false;
  select.addEventListener("pointerdown", () => { keyed = false; });
  select.addEventListener("keydown", () => { keyed = true; });
  select.addEventListener("change", () => { if (!keyed) select.form.requestSubmit(); });
}

// A second click on a button sends nothing for five seconds: the browser would discard the answer to the first one, and
// with it the secret of a new key or the session of a sign-in link.
for (const form of all("form[method=post]:not([data-stream])")) {
  let button = null, sent = 0;
  form.addEventListener("submit", (event) => {
    if (event.submitter === button && event.timeStamp - sent < 5000) event.preventDefault();
    else [button, sent] = [event.submitter, event.timeStamp];
  });
}

// Charts: one quick tip instead of the browser's slow titles.
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);
for (const plot of all(".plot svg")) {
  for (const mark of all("[data-tip]", plot)) mark.querySelector("title")?.remove();
  plot.addEventListener("pointermove", (event) => {
    const mark = event.target.closest("[data-tip]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.replaceChildren(...mark.dataset.tip.split("\n").map((line, place) => {
      const row = document.createElement(place ? "span" : "strong");
      row.textContent = line;
      return row;
    }));
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, event.clientY - tip.offsetHeight - 12)}px)`;
  });
  plot.addEventListener("pointerleave", () => { tip.hidden = true; });
}

// What stands in a text, or in the parts of this kind of a list: some providers write answers as lists of parts.
const words = (said, kind = "text") => {
  if (typeof said === "string") return kind === "text" ? said : "";
  return Array.isArray(said) ? said.filter((part) => (part?.type ?? "text") === kind).map((part) => words(part?.[kind])).join("") : "";
};

// Try it: show the answer while it is written.
const form = document.querySelector("form[data-stream]");
if (form) {
  const part = (name) => form.querySelector(`[data-${name}]`);
  const send = part("send-button"), stop = part("stop"), text = part("text"), facts = part("facts");
  let running = null;
  stop.addEventListener("click", () => running?.abort());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    running = new AbortController();
    send.disabled = true;
    stop.hidden = false;
    part("answer").hidden = false;
    part("reasoning").hidden = true;
    text.textContent = part("reasoning-text").textContent = "";
    text.classList.remove("failed");
    facts.textContent = "waiting …";
    const began = performance.now();
    let first = 0, usage = null, provider = "", id = "";
    const say = () => {
      const said = [];
      if (usage) said.push(`${usage.prompt_tokens} tokens in, ${usage.completion_tokens} out`);
      if (first) said.push(`first byte ${Math.round(first)} ms, whole ${Math.round(performance.now() - began)} ms`);
      if (provider) said.push(provider);
      if (id) said.push(id);
      facts.textContent = said.join(" · ");
    };
    const fail = (message) => { text.classList.add("failed"); text.append(message); };
    try {
      const reply = await fetch(form.dataset.stream, { method: "POST", body: new URLSearchParams(new FormData(form)), signal: running.signal });
      provider = reply.headers.get("x-tollgate-provider") ?? "";
      id = reply.headers.get("x-request-id") ?? "";
      if (!reply.ok || !(reply.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
        const said = await reply.json().catch(() => null);
        const why = reply.redirected || reply.status === 403 ? "Your session has ended. Copy your message, reload the page and sign in."
          : reply.status === 413 ? "Your message is too long for this page." : `The gateway answered ${reply.status}. Reload the page and try again.`;
        fail(said?.error?.message ?? why);
        say();
        return;
      }
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        rest += value;
        const lines = rest.split("\n");
        rest = lines.pop();
        for (const line of lines) {
          if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
          const chunk = JSON.parse(line.slice(6));
          if (chunk.error) { fail(chunk.error.message); continue; }
          if (chunk.usage) usage = chunk.usage;
          const delta = chunk.choices?.[0]?.delta ?? {};
          const thought = words(delta.reasoning || delta.reasoning_content) || words(delta.content, "thinking");
          const written = words(delta.content) || words(delta.refusal);
          if (!first && (written || thought)) first = performance.now() - began;
          if (thought) { part("reasoning").hidden = false; part("reasoning-text").append(thought); }
          if (written) text.append(written);
        }
        say();
      }
    } catch (error) {
      if (error.name !== "AbortError") fail("The connection was lost.");
    } finally {
      if (facts.textContent === "waiting …") facts.textContent = "";
      running = null;
      send.disabled = false;
      stop.hidden = true;
    }
  });
}
