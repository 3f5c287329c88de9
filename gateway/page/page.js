/*
 * The page for people: sessions, processes, strays, logs and a terminal, over the same HTTP that
 * agents use. The token lives in sessionStorage of this tab and goes out in the Authorization
 * header only; a WebSocket of a browser can't send one and takes it in its address.
 */
import { FitAddon } from "./addon-fit.mjs";
import { Terminal } from "./xterm.mjs";

const REFRESH_MS = 3000; // who waits, and for how long, comes by no event
const PAUSE_MS = 250; // between two looks, however much happens
const LOG_MAX = 512 * 1024; // characters that the log panel keeps
const EARLY_MAX = 4096; // characters typed into a terminal that is not there yet
const ENDED_MAX = 20; // processes that have ended in the list

const $ = (id) => document.getElementById(id);
const base = new URL(".", location.href);
let token = null; // null: nobody is in; "" where none is needed
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
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
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
        else if (line.startsWith("id: ")) event.id = line.slice(4);
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
  $("trouble").textContent = error ? visible(String(error.message ?? error)) : "";
}

/* Text of others, harmless to look at: what steers a terminal or turns the direction is shown. */
const visible = (text) =>
  String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) =>
    c < " " ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : c === "\u007f" ? "\u2421" : "\ufffd");

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

/* A question with a way out: true if the answer is yes. */
function ask(text, yes) {
  $("ask-text").textContent = visible(text);
  $("ask-yes").textContent = yes;
  const dialog = $("ask");
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) =>
    dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

/* of: what it is about, for those who don't see where it stands. */
function button(text, of, work, className = "") {
  let busy = false;
  return element("button", { type: "button", textContent: text, ariaLabel: visible(`${text} ${of}`), className,
    async onclick() {
      if (busy) return;
      busy = true;
      await attempt(work);
      busy = false;
    } });
}

const danger = (text, of, question, work) =>
  button(text, of, async () => ((await ask(question, text)) ? work() : null), "danger");

function seconds(s) {
  if (s === undefined || s === null) return "";
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
}

/* Put rows into a list. A row that has not changed stays the element it is, and what had the focus
 * keeps it, or what takes its place. */
function show(list, rows, empty) {
  const there = new Map([...list.children].map((li) => [li.dataset.id, li]));
  const active = list.contains(document.activeElement) ? document.activeElement : null;
  const at = active && [...list.children].indexOf(active.closest("li"));
  const now = rows.map((r) => {
    let li = there.get(r.id);
    if (li?.dataset.key !== r.key) {
      li = r.make();
      li.dataset.id = r.id;
      li.dataset.key = r.key;
    }
    r.update?.(li);
    return li;
  });
  if (!now.length) now.push(there.get("") ?? element("li", { className: "empty", textContent: empty }));
  if (!rows.length) now[0].dataset.id = "";
  if (now.length === list.children.length && now.every((li, i) => li === list.children[i])) return;
  list.replaceChildren(...now);
  if (!active || document.activeElement === active) return;
  const row = now.find((li) => li.dataset.id === active.closest("li").dataset.id) ?? now[Math.min(at, now.length - 1)];
  const same = [...row.querySelectorAll("button")].find((b) => b.textContent === active.textContent);
  (active.isConnected ? active : same ?? row.querySelector("button") ?? $("name")).focus();
}

/* The text of a row: its name, its state, and lines below. */
function rowText(name, state, isRunning, ...lines) {
  return element("div", { className: "text" },
    element("strong", { textContent: visible(name) }), " ",
    element("span", { className: isRunning ? "state running" : "state", textContent: visible(state) }), " ",
    element("span", { className: "state age" }), ...lines);
}

const line = (className, ...children) => element("p", { className: `detail ${className}` }, ...children);
const code = (text) => element("code", { textContent: visible(text) });
const setText = (e, text) => { if (e && e.textContent !== text) e.textContent = text; };

// ---- Lists

function sessionRow(s) {
  const waiting = s.waiting ?? [];
  return {
    id: s.id,
    key: JSON.stringify([s.state, s.running, s.cwd, s.why, waiting.map((w) => w.exec_id)]),
    make() {
      const text = rowText(s.id, s.state, s.running, line("where", visible(s.cwd ?? "")));
      if (s.why) text.append(line("why", visible(s.why)));
      if (s.running) text.append(line("runs", "runs ", code(s.running_text ?? s.running)));
      for (const w of waiting) {
        text.append(line("waits", "waits ", code(w.text ?? w.exec_id), " ", element("span", { className: "waited" })));
      }
      const li = element("li", {}, text, button("Terminal", `of ${s.id}`, () => openTerminal(s.id)));
      if (s.running) {
        if (s.running_kind !== "terminal") li.append(button("Log", `of ${s.running}`, () => openLog(s.running)));
        li.append(danger("Kill", `what runs in ${s.id}`, `Kill what runs in ${s.id}?`, () =>
          json("POST", of(`exec/${encodeURIComponent(s.running)}/kill`), {})));
      }
      li.append(danger("Delete", `session ${s.id}`, `Delete session ${s.id} and end all that it started?`, () =>
        json("DELETE", of(`session/${encodeURIComponent(s.id)}`))));
      li.dataset.session = s.id;
      return li;
    },
    update(li) {
      setText(li.querySelector(".age"), seconds(s.running ? s.running_s : undefined));
      li.querySelectorAll(".waited").forEach((e, i) => setText(e, seconds(waiting[i]?.waiting_s)));
    },
  };
}

const hasEnded = (p) => p.state === "exited";

function processRow(p) {
  const ended = hasEnded(p);
  const isService = p.kind === "service"; // its log and its end are the configuration's matter
  return {
    id: p.id,
    key: JSON.stringify([p.state, p.verdict, p.pid]),
    make() {
      const how = p.verdict === "exited" ? `exited with ${p.status}` : `${p.verdict} ${p.signal ?? ""}`;
      const where = [p.kind, p.session && `in ${p.session}`, p.pid ? `PID ${p.pid}` : ""].filter(Boolean).join(", ");
      const li = element("li", {}, rowText(p.id, ended ? how : p.state, !ended,
        line("where", visible(where)), line("", code(p.text ?? ""))));
      if (!isService) li.append(button("Log", `of ${p.id}`, () => openLog(p.id)));
      if (!ended && !isService) {
        li.append(danger("Kill", p.id, `Kill ${p.id} and all that it started?`, () =>
          json("POST", of(`process/${encodeURIComponent(p.id)}/kill`), {})));
      }
      li.dataset.process = p.id;
      return li;
    },
    update(li) {
      setText(li.querySelector(".age"), ended ? `after ${seconds(p.uptime_s)}` : seconds(p.uptime_s));
    },
  };
}

function strayRow(s) {
  return {
    id: String(s.pid),
    key: JSON.stringify([s.name, s.listen, s.session, s.of]),
    make() {
      const by = s.of ? `of ${s.of}` : s.session ? `of session ${s.session}` : "";
      const li = element("li", {}, rowText(s.name ?? "?", `PID ${s.pid}`, false,
        line("where", visible(`${by}${s.listen ? `, listens on ${s.listen}` : ""}`)), line("", code(s.text ?? ""))),
      danger("Kill", `stray ${s.pid}`, `Kill ${s.name ?? ""} (PID ${s.pid})?`, () =>
        json("POST", of(`stray/${s.pid}/kill`), {})));
      li.dataset.stray = s.pid;
      return li;
    },
    update(li) {
      setText(li.querySelector(".age"), seconds(s.uptime_s));
    },
  };
}

/* What runs, in the order of its beginning; then what has ended, the last one first. */
function shownProcesses(all) {
  const live = all.filter((p) => !hasEnded(p) && ["process", "service", "terminal", "exec"].includes(p.kind));
  const ended = all.filter((p) => hasEnded(p) && p.kind === "process").reverse();
  $("more").hidden = ended.length <= ENDED_MAX;
  setText($("more"), `and ${ended.length - ENDED_MAX} more that have ended`);
  return [...live, ...ended.slice(0, ENDED_MAX)];
}

const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

let refreshing = null;
let again = false;

/* Ask for the lists; at most so often, and only once at a time. */
function refresh() {
  again = true;
  refreshing ??= (async () => {
    while (again && token !== null) {
      again = false;
      await refreshOnce();
      await new Promise((done) => setTimeout(done, PAUSE_MS));
    }
    refreshing = null;
    if (again && token !== null) refresh();
  })();
}

async function refreshOnce() {
  const asked = token;
  try {
    const [{ sessions }, { processes, strays }] = await Promise.all(
      [json("GET", of("session")), json("GET", of("process?kind=all"))]);
    const full = await Promise.all(sessions.map((s) => (s.running || s.queue || s.state === "failed"
      ? json("GET", of(`session/${encodeURIComponent(s.id)}`)).catch(() => s) : s)));
    if (token !== asked) return; // another one, or none, since then
    show($("sessions"), full.map(sessionRow), "None yet. A command that names one makes it, too.");
    const rows = shownProcesses(processes);
    show($("processes"), rows.map(processRow), "None.");
    show($("strays"), strays.map(strayRow), "None: nothing has outlived what started it.");
    const running = rows.filter((p) => !hasEnded(p)).length;
    setText($("status"), `${count(full.length, "session")}, ${running} running beside them`);
  } catch (error) {
    if (error.status === 401) return logOut("The token was not accepted.");
    if (token === asked) setText($("status"), error.status ? `trouble: ${error.message}` : "not connected, trying again");
  }
}

/* Every change that init tells of asks for the lists anew. */
async function follow(signal) {
  let wait = 500;
  while (!signal.aborted) {
    try {
      for await (const event of events("v1/events?tail=1", signal)) {
        wait = 500;
        refresh();
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
  const opener = panel?.opener ?? document.activeElement;
  panel?.close();
  panel = { close, opener };
  $("panel-title").textContent = visible(title);
  $("panel").hidden = false;
}

/* When it has its size. */
const showPanel = () => $("panel").scrollIntoView({ block: "nearest" });

function closePanel() {
  if (!panel) return;
  const { close, opener } = panel;
  panel = null;
  close();
  $("panel").hidden = true;
  (opener?.isConnected ? opener : $("name")).focus();
}

function openTerminal(session) {
  const terminal = new Terminal({ cursorBlink: true, fontSize: 14, scrollback: 5000 });
  const fit = new FitAddon();
  const resized = new ResizeObserver(() => fit.fit());
  let socket = null;
  let early = ""; // typed before the connection is there
  let isOpen = true;
  openPanel(`Terminal of ${session}`, () => {
    isOpen = false;
    resized.disconnect();
    socket?.close();
    terminal.dispose();
    $("terminal").hidden = $("keys").hidden = true;
  });
  $("terminal").hidden = $("keys").hidden = false;
  showPanel(); // what can't be seen is not drawn
  terminal.loadAddon(fit);
  terminal.open($("terminal"));
  fit.fit();
  const isReady = () => socket?.readyState === WebSocket.OPEN;
  const send = (text) => {
    if (isReady()) socket.send(new TextEncoder().encode(text));
    else if (socket?.readyState === WebSocket.CONNECTING) early = (early + text).slice(0, EARLY_MAX);
    else if (socket?.readyState === WebSocket.CLOSED && text === "\r") connect();
  };

  /* What runs in the session is over first. */
  async function tellWait(waiting) {
    const isWaiting = () => isOpen && socket === waiting && waiting.readyState === WebSocket.CONNECTING;
    const found = isWaiting() && await json("GET", of(`session/${encodeURIComponent(session)}`)).catch(() => null);
    if (!found?.running || !isWaiting()) return;
    const text = visible(found.running_text ?? "").replace(/\s+/g, " ");
    terminal.write(`\r\x1b[2K${`waits for: ${text}`.slice(0, terminal.cols - 1)}`);
  }

  function connect() {
    const address = new URL(of("pty"), base);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    address.search = new URLSearchParams({ session, cols: terminal.cols, rows: terminal.rows,
      ...(token && { authorization: `Bearer ${token}` }) });
    let wasOpen = false;
    terminal.reset();
    terminal.write("connecting\u2026");
    socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    setTimeout(tellWait, 1000, socket);
    socket.onopen = () => {
      wasOpen = true;
      terminal.write("\r\x1b[2K");
      if (early) send(early);
      early = "";
    };
    socket.onmessage = ({ data }) => {
      if (!isOpen) return;
      if (typeof data !== "string") return terminal.write(new Uint8Array(data));
      const control = JSON.parse(data);
      if (control.type === "exit") terminal.write(`\r\n[ended: ${control.signal ?? control.code}]`);
      if (control.type === "error") terminal.write(`\r\n[${visible(control.message)}]`);
    };
    socket.onclose = () => {
      early = "";
      if (!isOpen) return;
      terminal.write(`\r\n[${wasOpen ? "closed" : "no connection: something holds the session, or the gateway is gone"}; ` +
        "Enter opens it again]\r\n");
    };
  }

  terminal.onData(send);
  terminal.onBinary((text) => isReady() && socket.send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
  terminal.onResize(({ cols, rows }) => isReady() && socket.send(JSON.stringify({ type: "resize", cols, rows })));
  for (const key of $("keys").children) {
    key.onclick = () => { send(key.dataset.keys); terminal.focus(); };
  }
  resized.observe($("terminal"));
  connect();
  terminal.focus();
}

/* Output as plain text: what only steers a terminal is left out, also where it comes in two pieces. */
class Plain {
  #rest = "";

  take(text) {
    const all = this.#rest + text;
    const at = all.search(/(?:\x1b(?:\[[0-9;:?]{0,64}[ -/]{0,4}|\][^\x07\x1b]{0,512}\x1b?)?|\r+)$/);
    this.#rest = at < 0 ? "" : all.slice(at);
    return this.#plain(at < 0 ? all : all.slice(0, at));
  }

  end() {
    return this.#plain(this.#rest);
  }

  #plain(text) {
    return visible(text.replace(/\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[=>78])/g, "")
      .replace(/\r+\n/g, "\n").replace(/\r+/g, "\n"));
  }
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
  showPanel();
  log.focus({ preventScroll: true });
  let kept = 0;
  const add = (text, name) => {
    if (!text) return;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    log.append(element("span", { className: name, textContent: text }));
    kept += text.length;
    while (kept > LOG_MAX && log.firstChild !== log.lastChild) {
      kept -= log.firstChild.textContent.length;
      log.firstChild.remove();
    }
    if (atEnd) log.scrollTop = log.scrollHeight;
  };
  followLog(id, stop.signal, add).catch((error) => {
    if (!stop.signal.aborted) add(`\n[${visible(error.message)}]\n`, "detail");
  });
}

/* Hand all output to add() until the process has ended; a connection that breaks is made again. */
async function followLog(id, signal, add) {
  const streams = Object.fromEntries(["stdout", "stderr"].map((name) =>
    [name, { decoder: new TextDecoder(), plain: new Plain() }]));
  for (let last = null; ;) {
    const since = last === null ? "" : `&since=${encodeURIComponent(last)}`;
    try {
      for await (const event of events(of(`process/${encodeURIComponent(id)}/logs?follow=1${since}`), signal)) {
        last = event.id ?? last;
        const stream = streams[event.name];
        if (stream) add(stream.plain.take(stream.decoder.decode(bytes(event.data), { stream: true })), event.name);
        if (event.name === "lost") add("\n[some output is not kept any more]\n", "detail");
        if (event.name === "exit") {
          for (const [name, s] of Object.entries(streams)) add(s.plain.end(), name);
          const outcome = JSON.parse(event.data);
          return add(`\n[ended: ${outcome.signal ?? outcome.exit_code}]\n`, "detail");
        }
      }
    } catch (error) {
      if (signal.aborted || error.status) throw error;
    }
    await new Promise((done) => setTimeout(done, 1000));
    if (signal.aborted) return;
  }
}

// ---- The token

let following = null;
let retry = null;

function logOut(why) {
  sessionStorage.removeItem("token");
  token = null;
  following?.abort();
  clearTimeout(retry);
  closePanel();
  $("ask").close("no");
  for (const list of document.querySelectorAll(".rows")) list.replaceChildren();
  $("main").hidden = $("forget").hidden = true;
  $("login").hidden = false;
  setText($("status"), "");
  trouble(why);
  $("token").select();
  $("token").focus();
}

/* why: what is said if the token is refused. */
async function logIn(candidate, why) {
  clearTimeout(retry);
  token = candidate;
  try {
    sandbox = (await json("GET", "page/config")).sandbox_id;
  } catch (error) {
    if (error.status === 401) return logOut(why);
    setText($("status"), "not connected, trying again");
    retry = setTimeout(() => logIn(candidate, why), 2000);
    return;
  }
  if (token) sessionStorage.setItem("token", token);
  $("token").value = "";
  trouble(null);
  $("login").hidden = true;
  $("main").hidden = false;
  $("forget").hidden = !token;
  following?.abort();
  following = new AbortController();
  follow(following.signal);
  refresh();
}

$("login").onsubmit = (event) => {
  event.preventDefault();
  logIn($("token").value.trim(), "The token was not accepted.");
};
$("create").onsubmit = (event) => {
  event.preventDefault();
  const name = $("name").value.trim();
  attempt(async () => {
    await json("POST", of("session"), name ? { id: name } : {});
    $("name").value = "";
  });
};
$("forget").onclick = () => logOut(null);
$("panel-close").onclick = closePanel;
$("log").onkeydown = (event) => { if (event.key === "Escape") closePanel(); };
const look = () => { if (token !== null && !document.hidden) refresh(); };
setInterval(look, REFRESH_MS);
document.addEventListener("visibilitychange", look);

// The address that `make run` prints carries the token behind '#', which no server ever gets.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (location.hash) history.replaceState(null, "", location.pathname);
const known = given ?? sessionStorage.getItem("token");
logIn(known ?? "", known ? "The token was not accepted." : null); // "": none is needed with auth = none
