// The page for people as a person uses it. Each test has a tab of its own; at its end nothing may
// stand in the console, and nothing may have been asked of another place.
import assert from 'node:assert/strict';
import puppeteer from 'puppeteer-core';
import { place, test as register } from './registry.mjs';

const DEADLINE_MS = 20_000;
const ROOT = `${place.workerUrl}/v1/sandbox/page`;
const HASH = `${place.workerUrl}/#token=${encodeURIComponent(place.apiKey)}`;

let browser = null;

/* A tab. told: what went wrong in it. */
async function open(size = { width: 1200, height: 900 }) {
  browser ??= await puppeteer.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', headless: true, pipe: true,
    userDataDir: `${process.cwd()}/profile`,
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run'],
  });
  const tab = await browser.newPage();
  await tab.setViewport(size);
  tab.setDefaultTimeout(DEADLINE_MS);
  tab.told = [];
  tab.asked = [];
  tab.on('console', (m) => ['error', 'warn'].includes(m.type()) && tab.told.push(`${m.type()}: ${m.text()}`));
  tab.on('pageerror', (e) => tab.told.push(`error: ${e.message}`));
  tab.on('request', (r) => tab.asked.push(r.url()));
  tab.on('dialog', (d) => { tab.told.push(`dialog: ${d.message()}`); d.dismiss(); });
  return tab;
}


// Where a test begins: with the token, or in an empty tab; in a window of that size.
const IN = { isIn: true };
const OUT = {};
const PHONE = { width: 390, height: 844, isMobile: true, hasTouch: true };
const IN_PHONE = { isIn: true, size: PHONE };
const OUT_PHONE = { size: PHONE };

/* expected: parts of what the console may say all the same. */
function test(name, where, run, expected = []) {
  register(name, async () => {
    const tab = await open(where.size);
    try {
      if (where.isIn) await enter(tab);
      await run(tab);
      const told = tab.told.filter((t) => !expected.some((e) => t.includes(e)));
      assert.deepEqual(told, [], 'nothing stands in the console');
      const elsewhere = tab.asked.filter((u) => !u.startsWith(`${place.workerUrl}/`) && !u.startsWith('data:'));
      assert.deepEqual(elsewhere, [], 'nothing is asked of another place');
    } catch (e) {
      e.message += `\nconsole: ${tab.told.join('\n')}\npage: ${await tab.evaluate(() => document.body.innerText).catch(() => '')}`;
      throw e;
    } finally {
      await tab.close();
    }
  });
}

async function enter(tab, url = HASH) {
  await tab.goto(url);
  await shown(tab, '#main');
  await tab.waitForFunction(() => document.querySelector('#sessions li'));
}

// ---- what a person sees and does

const isShown = (tab, selector) => tab.$eval(selector, (e) => e.checkVisibility());
const shown = (tab, selector) => tab.waitForSelector(selector, { visible: true });
const hidden = (tab, selector) => tab.waitForSelector(selector, { hidden: true });
const text = (tab, selector) => tab.$eval(selector, (e) => e.innerText);
const says = (tab, selector, words) => tab.waitForFunction(
  (s, w) => document.querySelector(s)?.innerText.includes(w), {}, selector, words);
const gone = (tab, selector) => tab.waitForFunction((s) => !document.querySelector(s), {}, selector);
const session = (name) => `[data-session="${name}"]`;
const processRow = (name) => `[data-process="${name}"]`;

/* Click the button with that text within what selector chooses. */
async function press(tab, selector, label) {
  const find = (s, l) => [...document.querySelectorAll(`${s} button`)].find((b) => b.textContent === l);
  for (let tries = 50; ; tries--) {
    const at = await tab.waitForFunction(find, {}, selector, label);
    try {
      return await at.asElement().click();
    } catch (e) { // its row has just been replaced
      if (!tries || !/not clickable|detached/.test(e.message)) throw e;
    }
  }
}

/* The text of the terminal's screen. */
const screen = (tab) => tab.$eval('#terminal .xterm-rows', (e) => e.innerText);
const screenSays = (tab, words) => tab.waitForFunction(
  (w) => document.querySelector('#terminal .xterm-rows')?.textContent.includes(w), {}, words);

const prompt = (tab) => tab.waitForFunction(
  () => /[$#]\s*$/.test(document.querySelector('#terminal .xterm-rows')?.textContent));

// ---- what happens beside the page

async function api(method, path, body, headers = {}) {
  const response = await fetch(`${ROOT}/${path}`, { method, body: body && JSON.stringify(body),
    headers: { Authorization: `Bearer ${place.apiKey}`, ...headers } });
  const answer = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${answer}`);
  return answer;
}

let number = 0;
const unique = (what) => `${what}${++number}`;
const start = async (command, more = {}) => JSON.parse(await api('POST', 'process', { command, ...more })).id;
const kill = (id) => api('POST', `process/${id}/kill`, { grace_ms: 0 });
/* A command of a session, not waited for. */
const run = (name, command) => api('POST', 'exec', { argv: ['sh', '-c', command] }, { 'Session-Id': name });


// ---- the token

const REFUSED = ['status of 401'];

test('the token is asked for once and kept in this tab alone', OUT, async (tab) => {
  await tab.goto(place.workerUrl);
  await shown(tab, '#login');
  assert.equal(await isShown(tab, '#main'), false);
  assert.equal(await isShown(tab, '#trouble'), false, 'nobody is blamed before he has tried');
  assert.equal(await tab.evaluate(() => document.activeElement.id), 'token');
  await tab.keyboard.type(`${place.apiKey}\n`);
  await shown(tab, '#main');
  assert.equal(await isShown(tab, '#login'), false);
  assert.deepEqual(await tab.evaluate(() => [sessionStorage.token, localStorage.length, document.cookie]),
    [place.apiKey, 0, '']);
  // when the page is loaded again, then it is not asked for
  await tab.reload();
  await shown(tab, '#main');
  assert.equal(await isShown(tab, '#login'), false);
  assert.equal(tab.asked.filter((u) => u.includes(encodeURIComponent(place.apiKey))).length, 0,
    'it stands in no address of a request');
  // when it is forgotten, then it is
  await press(tab, 'header', 'Forget token');
  await shown(tab, '#login');
  assert.equal(await tab.evaluate(() => sessionStorage.length), 0);
  assert.equal(await tab.$('#sessions li'), null, 'nothing of the lists is left');
  await tab.reload();
  await shown(tab, '#login');
}, REFUSED);

test('a wrong token is said', OUT, async (tab) => {
  await tab.goto(place.workerUrl);
  await shown(tab, '#login');
  await tab.type('#token', 'wrong\n');
  await says(tab, '#trouble', 'The token was not accepted.');
  assert.equal(await isShown(tab, '#main'), false);
  assert.equal(await tab.evaluate(() => sessionStorage.length), 0);
  await tab.keyboard.type(`${place.apiKey}\n`); // over what was there
  await shown(tab, '#main');
  assert.equal(await isShown(tab, '#trouble'), false);
}, REFUSED);

test('a token in the address is taken out of it', OUT, async (tab) => {
  await enter(tab);
  assert.equal(tab.url(), `${place.workerUrl}/`);
  assert.equal(await tab.evaluate(() => sessionStorage.token), place.apiKey);
  assert.equal(await tab.evaluate(() => history.length), 2, 'nor does the way back have it');
});

// ---- sessions

test('a session is created and deleted', IN, async (tab) => {
  const name = unique('made');
  await tab.type('#name', `${name}\n`);
  await shown(tab, session(name));
  assert.equal(await tab.$eval('#name', (e) => e.value), '');
  await says(tab, session(name), '/workspace');
  // cancel does nothing
  await press(tab, session(name), 'Delete');
  await says(tab, '#ask', `Delete session ${name}`);
  assert.equal(await tab.evaluate(() => document.activeElement.textContent), 'Cancel', 'Enter harms nothing');
  await press(tab, '#ask', 'Cancel');
  await hidden(tab, '#ask');
  await press(tab, session(name), 'Delete');
  await shown(tab, '#ask');
  await tab.keyboard.press('Escape');
  await hidden(tab, '#ask');
  assert.ok((await api('GET', 'session')).includes(name));
  // yes does
  await press(tab, session(name), 'Delete');
  await press(tab, '#ask', 'Delete');
  await gone(tab, session(name));
  assert.ok(!(await api('GET', 'session')).includes(name));
});

test('what is refused is said', IN, async (tab) => {
  const name = unique('twice');
  await api('POST', 'session', { id: name });
  await shown(tab, session(name));
  await tab.type('#name', `${name}\n`);
  await says(tab, '#trouble', `Session '${name}' already exists`);
  await tab.$eval('#name', (e) => { e.value = ''; });
  await press(tab, '#create', 'Create'); // a name is made up
  await hidden(tab, '#trouble');
  await api('DELETE', `session/${name}`);
}, ['status of 502']);

test('who holds a session and who waits is shown', IN, async (tab) => {
  const name = unique('busy');
  const first = run(name, 'sleep 1000.25');
  await says(tab, session(name), 'sleep 1000.25');
  const second = run(name, 'echo my turn');
  await tab.waitForSelector(`${session(name)} .waits`); // who comes second is to be known
  const third = run(name, 'echo and mine');
  await tab.waitForFunction((s) => document.querySelectorAll(`${s} .waits`).length === 2, {}, session(name));
  const waits = await tab.$$eval(`${session(name)} .waits`, (all) => all.map((e) => e.innerText));
  assert.match(waits[0], /^waits .*my turn.* \d+ s$/);
  assert.match(waits[1], /and mine/);
  // when what runs is killed, then the others get their turn
  await press(tab, session(name), 'Kill');
  await press(tab, '#ask', 'Kill');
  await Promise.all([first, second, third]);
  await tab.waitForFunction((s) => !document.querySelector(`${s} .waits, ${s} .runs`), {}, session(name));
  await api('DELETE', `session/${name}`);
});

// ---- the terminal

test('the terminal takes what is typed and shows what comes', IN, async (tab) => {
  const name = unique('term');
  await api('POST', 'session', { id: name });
  await press(tab, session(name), 'Terminal');
  await prompt(tab);
  await tab.keyboard.type('cd /tmp; echo is-$((6*7))-there; stty size\n');
  await screenSays(tab, 'is-42-there');
  // the window's size is the screen's
  const rows = await tab.$$eval('#terminal .xterm-rows > div', (all) => all.length);
  await screenSays(tab, `${rows} `);
  // when the window gets smaller, then the program hears of it
  await tab.setViewport({ width: 700, height: 500 });
  await tab.waitForFunction((n) => document.querySelectorAll('#terminal .xterm-rows > div').length < n, {}, rows);
  const fewer = await tab.$$eval('#terminal .xterm-rows > div', (all) => all.length);
  await tab.keyboard.type('clear; stty size\n');
  await screenSays(tab, `${fewer} `);
  // when its shell ends, then that is said, and Enter opens another one
  await tab.keyboard.type('exit 3\n');
  await screenSays(tab, '[ended: 3]');
  await screenSays(tab, 'Enter opens it again');
  await tab.keyboard.press('Enter');
  await tab.waitForFunction(() => !document.querySelector('#terminal').textContent.includes('[ended'));
  await tab.keyboard.type('echo again-$((1+1))\n');
  await screenSays(tab, 'again-2');
  // when it is closed, then the focus is where it was
  await press(tab, '#panel', 'Close');
  await hidden(tab, '#panel');
  assert.equal(await tab.evaluate(() => document.activeElement.ariaLabel), `Terminal of ${name}`);
  await api('DELETE', `session/${name}`);
});

// ---- processes

test('a log grows', IN, async (tab) => {
  const id = await start('echo first; read line; echo "then $line" >&2; exit 3', { stdin: true });
  await press(tab, processRow(id), 'Log');
  await says(tab, '#log', 'first');
  assert.ok(!(await text(tab, '#log')).includes('then'));
  await fetch(`${ROOT}/process/${id}/stdin`, { method: 'POST', body: 'more\n', headers: { Authorization: `Bearer ${place.apiKey}` } });
  await says(tab, '#log', 'then more');
  await says(tab, '#log', '[ended: 3]');
  assert.equal(await text(tab, '#log .stderr'), 'then more\n');
  await says(tab, processRow(id), 'exited with 3');
  await tab.keyboard.press('Escape');
  await hidden(tab, '#panel');
});

test('a process is killed after a question', IN, async (tab) => {
  const id = await start('exec sleep 1000.5');
  await says(tab, processRow(id), 'running');
  await press(tab, processRow(id), 'Kill');
  await says(tab, '#ask', `Kill ${id}`);
  await press(tab, '#ask', 'Cancel');
  await hidden(tab, '#ask');
  assert.equal(JSON.parse(await api('GET', `process/${id}`)).state, 'running');
  await press(tab, processRow(id), 'Kill');
  await press(tab, '#ask', 'Kill');
  await says(tab, processRow(id), 'killed_by_client');
  assert.equal(JSON.parse(await api('GET', `process/${id}`)).verdict, 'killed_by_client');
  const labels = await tab.$$eval(`${processRow(id)} button`, (all) => all.map((b) => b.textContent));
  assert.deepEqual(labels, ['Log'], 'what has ended cannot be killed');
});

test('services are shown', IN, async (tab) => {
  await says(tab, processRow('web-cache'), 'running');
  await says(tab, processRow('web-cache'), 'service');
});

test('strays are shown and killed', IN, async (tab) => {
  const name = unique('leaves');
  await run(name, 'sleep 1000.75 >/dev/null 2>&1 &');
  const found = await tab.waitForFunction(
    () => [...document.querySelectorAll('[data-stray]')].find((e) => e.innerText.includes('1000.75')));
  const pid = await found.asElement().evaluate((e) => e.dataset.stray);
  await says(tab, `[data-stray="${pid}"]`, `of session ${name}`);
  await press(tab, `[data-stray="${pid}"]`, 'Kill');
  await press(tab, '#ask', 'Cancel');
  await hidden(tab, '#ask');
  assert.ok((await api('GET', 'process')).includes('1000.75'));
  await press(tab, `[data-stray="${pid}"]`, 'Kill');
  await press(tab, '#ask', 'Kill');
  await gone(tab, `[data-stray="${pid}"]`);
  assert.ok(!(await api('GET', 'process')).includes('1000.75'));
  await api('DELETE', `session/${name}`);
});

// ---- looks

/* Nothing is wider than the window. */
async function fits(tab, what) {
  const [page, window] = await tab.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(page <= window && window === 390, `${what}: ${page} of ${window} px`);
}

test('a terminal of a session that is busy says what it waits for', IN, async (tab) => {
  const name = unique('busy-');
  await api('POST', 'session', { id: name });
  run(name, 'while [ ! -e busy-is-over ]; do sleep 0.1; done').catch(() => {});
  await says(tab, session(name), 'busy-is-over');
  await press(tab, session(name), 'Terminal');
  await screenSays(tab, 'waits for: ');
  await screenSays(tab, 'busy-is-over');
  await api('POST', 'exec', { argv: ['touch', 'busy-is-over'] });
  await prompt(tab);
  await api('DELETE', `session/${name}`);
});

test('on a phone nothing is to be pushed sideways: the token', OUT_PHONE, async (tab) => {
  await tab.goto(place.workerUrl);
  await shown(tab, '#login');
  await fits(tab, 'the form');
}, REFUSED);

test('on a phone nothing is to be pushed sideways', IN_PHONE, async (tab) => {
  const long = 'x'.repeat(300);
  const name = unique(`long-${'name'.repeat(12)}-`);
  const id = await start(`echo ${long}; exec sh -c 'sleep 1000; :' ${long}`, { session: name });
  await shown(tab, session(name));
  await shown(tab, processRow(id));
  await fits(tab, 'the lists');
  await press(tab, processRow(id), 'Log');
  await says(tab, '#log', 'xxxx');
  await fits(tab, 'a log');
  await press(tab, '#panel', 'Close');
  await press(tab, processRow(id), 'Kill');
  await fits(tab, 'a question');
  await press(tab, '#ask', 'Kill');
  await says(tab, processRow(id), 'killed');
  await press(tab, session(name), 'Terminal');
  await prompt(tab);
  await fits(tab, 'a terminal');
  // keys that its keyboard lacks, and buttons for fingers
  await tab.keyboard.type('echo goes-$((40+2)); sed -u s/^/got-/\n');
  await screenSays(tab, 'goes-42'); // bash has the terminal raw until then: Enter would be no end of a line
  await tab.keyboard.type('it\n');
  await screenSays(tab, 'got-it'); // bash may miss a Ctrl-C that comes while it forks
  await press(tab, '#keys', 'Ctrl-C');
  await tab.keyboard.type('echo back-$((40+2))\n');
  await screenSays(tab, 'back-42');
  const { y, height } = await tab.$eval('#panel', (e) => e.getBoundingClientRect().toJSON());
  assert.deepEqual([y, height], [0, 844], 'it has the whole screen');
  // when the keyboard takes half of it, then the terminal still is whole
  await tab.setViewport({ ...PHONE, height: 400 });
  await tab.waitForFunction(() => document.querySelector('#keys').getBoundingClientRect().bottom <= 400);
  await tab.keyboard.type('echo small-$((40+2))\n');
  await screenSays(tab, 'small-42');
  const heights = await tab.$$eval('button', (all) => all.filter((b) => b.checkVisibility()).map((b) => b.offsetHeight));
  assert.ok(Math.min(...heights) >= 40, `buttons of ${Math.min(...heights)} px`);
  await api('DELETE', `session/${name}`);
});

/* Of two colours as CSS computes them (WCAG 2). */
function contrast(one, other) {
  const light = (c) => {
    const [r, g, b] = c.match(/[\d.]+/g).map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
}

test('it is dark where the system is, and can be read in both', IN, async (tab) => {
  const id = await start('exec sleep 1000');
  await says(tab, processRow(id), 'running');
  const looks = {};
  for (const value of ['light', 'dark']) {
    await tab.emulateMediaFeatures([{ name: 'prefers-color-scheme', value }]);
    looks[value] = await tab.evaluate((s) => {
      const style = (e) => getComputedStyle(document.querySelector(e));
      return { back: style('body').backgroundColor, raised: style('section').backgroundColor, front: style('body').color,
        faint: style(`${s} .detail`).color, danger: style(`${s} .danger`).color, good: style(`${s} .state.running`).color };
    }, processRow(id));
    const { back, raised, ...fronts } = looks[value];
    for (const [what, color] of Object.entries(fronts)) {
      for (const under of [back, raised]) {
        assert.ok(contrast(color, under) >= 4.5, `${value}: ${what} ${color} on ${under}: ${contrast(color, under)}`);
      }
    }
  }
  assert.ok(contrast(looks.light.back, looks.dark.back) > 10, JSON.stringify(looks));
  await kill(id);
});

// ---- harm

test('what programs write and are called harms nothing', IN, async (tab) => {
  const evil = '<script>document.title="harmed"</script><img src=x onerror="document.title=1">';
  const file = '/workspace/evil.txt';
  await api('PUT', `file${file}`, evil);
  const name = unique('evil');
  const id = await start(`cat ${file}; printf '\\033[31mred\\033[0m \\033]0;title\\007\\001\\b\\177\\033[2J\\342\\200\\256end\\r\\nline\\n'; ` +
    `exec sh -c 'sleep 1000; :' '${evil.replaceAll('"', '')}'`, { session: name });
  await says(tab, processRow(id), '<script>');
  await press(tab, processRow(id), 'Log');
  await says(tab, '#log', 'line');
  const log = await text(tab, '#log');
  assert.ok(log.includes('<script>') && log.includes('onerror'), log);
  assert.match(log, /red \u2401\u2408\u2421\ufffdend\nline\n/);
  // and in the terminal, where they steer the screen and nothing else
  await press(tab, session(name), 'Terminal');
  await prompt(tab);
  await tab.keyboard.type(`cat ${file}; printf '\\033]0;harmed\\007\\033]52;c;aGFybQ==\\007'; echo all-$((1+1))\n`);
  await screenSays(tab, 'all-2');
  assert.ok((await screen(tab)).includes('<script>'));
  assert.equal(await tab.title(), 'sandbox');
  assert.equal(await tab.$('#main script, #main img'), null);
  await api('DELETE', `session/${name}`);
});

test('nobody else may run anything in it', OUT, async (tab) => {
  const response = await tab.goto(place.workerUrl);
  const policy = response.headers()['content-security-policy'];
  assert.ok(policy.startsWith("default-src 'none'; script-src 'self'"), policy);
  assert.ok(policy.includes("frame-ancestors 'none'"), policy);
  await shown(tab, '#login');
  const ran = await tab.evaluate(() => {
    const script = document.createElement('script');
    script.textContent = 'window.ran = true';
    document.body.append(script);
    return window.ran ?? false;
  });
  assert.equal(ran, false);
}, [...REFUSED, 'Content Security Policy']);

// ---- the focus

test('a list that changes leaves the focus where it is', IN, async (tab) => {
  const [a, b] = [unique('stays'), unique('comes')];
  await api('POST', 'session', { id: a });
  await shown(tab, session(a));
  await tab.focus(`${session(a)} .danger`);
  const focused = () => tab.evaluate(() => document.activeElement.ariaLabel);
  assert.equal(await focused(), `Delete session ${a}`);
  await api('POST', 'session', { id: b }); // another row
  await shown(tab, session(b));
  assert.equal(await focused(), `Delete session ${a}`);
  const busy = run(a, `until [ -e ${a} ]; do sleep 0.05; done`); // the row itself
  await tab.waitForFunction((s) => document.querySelector(`${s} .runs`), {}, session(a));
  assert.match(await focused(), new RegExp(`${a}$`));
  await api('PUT', `file/workspace/${a}`, 'go');
  await busy;
  await api('DELETE', `session/${b}`);
  await gone(tab, session(b));
  assert.match(await focused(), new RegExp(`${a}$`));
  await api('DELETE', `session/${a}`);
});
