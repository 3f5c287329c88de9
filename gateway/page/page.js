/*
 * The page for people: sessions, processes, strays, logs and a terminal, over the same HTTP that
 * agents use. The token lives in sessionStorage of this tab and goes out in the Authorization
 * header only; a WebSocket of a browser can't send one and takes it in its address.
 */
import { FitAddon } from "./addon-fit.mjs";
import { Terminal } from "./xterm.mjs";

const REFRESH_MS = 3000; // who waits, and for how long, comes by no event
const LOG_MAX = 512 * 1024; // characters that the log panel keeps

const $ = (id) => document.getElementById(id);
const base = new URL(".", location.href);
let token = null;
let sandbox = null; // its id in the addresses
let panel = null; // what is open: {title, close()}

// ---- HTTP

class Refused extends Error {
  constructor(status, body) {
    super(body.error ?? `HTTP ${status}`);
    this.status = status;
  }
}

async function request(method, path, { body, signal } = {}) {
  const headers = { Authorization: `Bearer ${token}` };
  const response = await fetch(new URL(path, base), { method, headers, body, signal });
  if (!response.ok) {
    const text = await response.text();
    let parsed = {};
    try {
      parsed = JSON.parse(text);
    } catch {
      parsed.error = text;
    }
    throw new Refused(response.status, parsed);
  }
  return response;
}

const of = (path) => `v1/sandbox/${sandbox}/${path}`;
const json = async (method, path, body) => {
  const response = await request(method, path, { body: body && JSON.stringify(body) });
  return response.status === 204 ? null : response.json();
};

/* Server-sent events of a GET, until it ends or the signal comes. */
async function* events(path, signal) {
  const response = await request("GET", path, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const event = { name: "message", data: "" };
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) event.name = line.slice(7);
        else if (line.startsWith("data: ")) event.data += line.slice(6);
      }
      yield event;
    }
  }
}

const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

// ---- Parts of the page

function element(name, properties = {}, ...children) {
  const e = Object.assign(document.createElement(name), properties);
  e.append(...children);
  return e;
}

function trouble(error) {
  $("trouble").hidden = !error;
  $("trouble").textContent = error ? String(error.message ?? error) : "";
}

/* Run what a button does; what goes wrong is shown. */
async function attempt(work) {
  try {
    await work();
    trouble(null);
  } catch (error) {
    if (error.status === 401) return logOut("The token was not accepted.");
    trouble(error);
  }
  refresh();
}

function ask(text, yes) {
  $("ask-text").textContent = text;
  $("ask-yes").textContent = yes;
  const dialog = $("ask");
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) =>
    dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

const button = (text, work, properties = {}) =>
  element("button", { type: "button", textContent: text, onclick: () => attempt(work), ...properties });

const danger = (text, question, yes, work) =>
  button(text, async () => ((await ask(question, yes)) ? work() : null), { className: "danger" });

function seconds(s) {
  if (s === undefined || s === null) return "";
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
}

/* Put rows into a list, but leave it alone where nothing changed: what is being clicked stays. */
function show(list, rows, empty) {
  const key = JSON.stringify(rows.map((r) => r.key));
  if (list.dataset.key === key) {
    rows.forEach((r, i) => r.update?.(list.children[i]));
    return;
  }
  list.dataset.key = key;
  list.replaceChildren(...(rows.length
    ? rows.map((r) => { const e = r.make(); r.update?.(e); return e; })
    : [element("li", { className: "empty", textContent: empty })]));
}

// ---- Lists

function sessionRow(s) {
  return {
    key: [s.id, s.state, s.running, (s.waiting ?? []).map((w) => w.id), s.cwd],
    make() {
      const li = element("li");
      li.dataset.session = s.id;
      const text = element("div", { className: "text" },
        element("strong", { textContent: s.id }), " ",
        element("span", { className: `state ${s.running ? "running" : ""}`, textContent: s.state }),
        element("p", { className: "detail", textContent: s.cwd ?? "" }));
      if (s.running) {
        text.append(element("p", { className: "detail running" }, "runs ",
          element("code", { textContent: s.running_text ?? s.running }), " ",
          element("span", { className: "age" })));
      }
      for (const w of s.waiting ?? []) {
        text.append(element("p", { className: "detail waits" }, "waits ",
          element("code", { textContent: w.text ?? w.id })));
      }
      li.append(text, button("Terminal", () => openTerminal(s.id)));
      if (s.running) {
        li.append(danger("Kill", `Kill what runs in ${s.id}?`, "Kill", () =>
          json("POST", of(`exec/${encodeURIComponent(s.running)}/kill`), {})));
      }
      li.append(danger("Delete", `Delete session ${s.id} and all that it started?`, "Delete", () =>
        json("DELETE", of(`session/${encodeURIComponent(s.id)}`))));
      return li;
    },
    update(li) {
      const age = li.querySelector(".age");
      if (age) age.textContent = seconds(s.running_s);
    },
  };
}

function processRow(p) {
  const ended = p.state === "ended";
  return {
    key: [p.id, p.state, p.verdict],
    make() {
      const li = element("li");
      li.dataset.process = p.id;
      const state = ended ? `${p.verdict ?? "ended"} ${p.signal ?? p.status ?? ""}` : p.state;
      li.append(element("div", { className: "text" },
        element("strong", { textContent: p.id }), " ",
        element("span", { className: `state ${ended ? "" : "running"}`, textContent: state }), " ",
        element("span", { className: "state age" }),
        element("p", { className: "detail" }, element("code", { textContent: p.text ?? "" }))),
      button("Log", () => openLog(p.id)));
      if (!ended) {
        li.append(danger("Kill", `Kill ${p.id} and all that it started?`, "Kill", () =>
          json("POST", of(`process/${encodeURIComponent(p.id)}/kill`), {})));
      }
      return li;
    },
    update(li) {
      li.querySelector(".age").textContent = ended ? "" : seconds(p.uptime_s);
    },
  };
}

function strayRow(s) {
  return {
    key: [s.pid, s.name],
    make() {
      const where = s.session ? `left in ${s.session}` : "left";
      const ports = s.listen?.length ? `, listens on ${[s.listen].flat().join(", ")}` : "";
      return element("li", {}, element("div", { className: "text" },
        element("strong", { textContent: `${s.pid} ${s.name ?? ""}` }),
        element("p", { className: "detail", textContent: where + ports })),
      danger("Kill", `Kill stray ${s.pid} ${s.name ?? ""}?`, "Kill", () =>
        json("POST", of(`stray/${s.pid}/kill`), {})));
    },
  };
}

let refreshing = null;
let again = false;

function refresh() {
  again = true;
  refreshing ??= (async () => {
    while (again && token) {
      again = false;
      await refreshOnce();
    }
    refreshing = null;
  })();
}

async function refreshOnce() {
  try {
    const [sessions, processes] = await Promise.all(
      [json("GET", of("session")), json("GET", of("process"))]);
    const full = await Promise.all(sessions.sessions.map((s) =>
      s.running || s.queue ? json("GET", of(`session/${encodeURIComponent(s.id)}`)).catch(() => s) : s));
    show($("sessions"), full.map(sessionRow), "None yet.");
    const rows = processes.processes.filter((p) => p.kind === "process" || p.kind === "service");
    show($("processes"), rows.map(processRow), "None.");
    show($("strays"), (processes.strays ?? []).map(strayRow), "None: nothing outlived what started it.");
    $("status").textContent = `${full.length} sessions, ${rows.filter((p) => p.state !== "ended").length} running`;
  } catch (error) {
    if (error.status === 401) return logOut("The token was not accepted.");
    $("status").textContent = "not connected";
  }
}

/* Every change that init tells of asks for the lists anew. */
async function follow(signal) {
  let wait = 500;
  while (!signal.aborted) {
    try {
      for await (const event of events("v1/events", signal)) {
        wait = 500;
        if (event.name !== "start") refresh();
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) return logOut("The token was not accepted.");
    }
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 10000);
  }
}

// ---- The panel: a terminal, or a log

function openPanel(title, close) {
  panel?.close();
  panel = { close };
  $("panel-title").textContent = title;
  $("panel").hidden = false;
  $("panel").scrollIntoView({ block: "nearest" });
}

function closePanel() {
  panel?.close();
  panel = null;
  $("panel").hidden = true;
}

function openTerminal(session) {
  const terminal = new Terminal({ cursorBlink: true, fontSize: 14, scrollback: 5000 });
  const fit = new FitAddon();
  let socket = null;
  const resized = new ResizeObserver(() => fit.fit());
  openPanel(`Terminal of ${session}`, () => {
    resized.disconnect();
    socket?.close();
    terminal.dispose();
    $("terminal").hidden = $("keys").hidden = true;
  });
  $("terminal").hidden = $("keys").hidden = false;
  terminal.loadAddon(fit);
  terminal.open($("terminal"));
  fit.fit();
  const address = new URL(of("pty"), base);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  address.search = new URLSearchParams({
    session, cols: terminal.cols, rows: terminal.rows, authorization: `Bearer ${token}` });
  socket = new WebSocket(address);
  socket.binaryType = "arraybuffer";
  const send = (text) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(new TextEncoder().encode(text));
  };
  socket.onmessage = ({ data }) => {
    if (typeof data !== "string") return terminal.write(new Uint8Array(data));
    const control = JSON.parse(data);
    if (control.type === "exit") terminal.write(`\r\n[ended: ${control.signal ?? control.code}]\r\n`);
    if (control.type === "error") terminal.write(`\r\n[${control.message}]\r\n`);
  };
  socket.onclose = ({ code }) => terminal.write(`\r\n[closed${code === 1000 ? "" : `: ${code}`}]\r\n`);
  terminal.onData(send);
  terminal.onBinary((text) => socket.send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
  terminal.onResize(({ cols, rows }) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "resize", cols, rows }));
  });
  for (const key of $("keys").children) {
    key.onclick = () => { send(key.dataset.keys); terminal.focus(); };
  }
  resized.observe($("terminal"));
  terminal.focus();
}

function openLog(id) {
  const log = $("log");
  const stop = new AbortController();
  openPanel(`Log of ${id}`, () => {
    stop.abort();
    log.hidden = true;
  });
  log.replaceChildren();
  log.hidden = false;
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  let kept = 0;
  const add = (text, name) => {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    log.append(element("span", { className: name, textContent: text }));
    kept += text.length;
    while (kept > LOG_MAX && log.firstChild !== log.lastChild) {
      kept -= log.firstChild.textContent.length;
      log.firstChild.remove();
    }
    if (atEnd) log.scrollTop = log.scrollHeight;
  };
  (async () => {
    try {
      for await (const event of events(of(`process/${encodeURIComponent(id)}/logs?follow=1`), stop.signal)) {
        if (event.name in decoders) {
          add(decoders[event.name].decode(bytes(event.data), { stream: true }), event.name);
        } else if (event.name === "exit") {
          const outcome = JSON.parse(event.data);
          add(`\n[ended: ${outcome.signal ?? outcome.exit_code}]\n`, "detail");
        } else if (event.name === "lost") {
          add("\n[some output was lost]\n", "detail");
        }
      }
    } catch (error) {
      if (!stop.signal.aborted) add(`\n[${error.message}]\n`, "detail");
    }
  })();
}

// ---- The token

let following = null;

function logOut(why) {
  sessionStorage.removeItem("token");
  token = null;
  following?.abort();
  closePanel();
  $("main").hidden = $("forget").hidden = true;
  $("login").hidden = false;
  $("status").textContent = why ?? "";
  $("token").focus();
}

async function logIn(candidate) {
  token = candidate;
  try {
    sandbox = (await json("GET", "page/config")).sandbox_id;
  } catch (error) {
    return logOut(error.status === 401 ? "The token was not accepted." : error.message);
  }
  sessionStorage.setItem("token", token);
  $("token").value = "";
  $("login").hidden = true;
  $("main").hidden = $("forget").hidden = false;
  following = new AbortController();
  follow(following.signal);
  refresh();
}

$("login").onsubmit = (event) => {
  event.preventDefault();
  logIn($("token").value.trim());
};
$("create").onsubmit = (event) => {
  event.preventDefault();
  const name = $("name").value.trim();
  attempt(async () => {
    await json("POST", of("session"), name ? { id: name } : {});
    $("name").value = "";
  });
};
$("forget").onclick = () => logOut("");
$("panel-close").onclick = closePanel;
setInterval(() => { if (token && !document.hidden) refresh(); }, REFRESH_MS);

// The address that `make run` prints carries the token behind '#', which no server ever gets.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) history.replaceState(null, "", location.pathname);
const known = given ?? sessionStorage.getItem("token");
if (known) logIn(known);
else logIn("").then(() => {}); // it is not needed where auth = none
