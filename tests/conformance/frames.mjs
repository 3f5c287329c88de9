// The frames of terminals, through npm's `ws`.
import assert from 'node:assert/strict';
import { request } from 'node:http';
import WebSocket from 'ws';
import { place, test } from './registry.mjs';

const base = place.workerUrl;
let number = 0;
const freshName = () => `frames-${process.pid}-${++number}`;
const ID = 'frames2frames2frames2frame';

// A terminal's socket: `out` grows, `texts` are its control frames; all waits have a deadline.
class Terminal {
  constructor(query = '', options = {}) {
    const { url = `${base.replace(/^http/, 'ws')}/v1/sandbox/${ID}/pty`, headers, ...more } = options;
    this.out = '';
    this.texts = [];
    this.binaryBeforeReady = 0;
    this.closed = null;
    this.socket = new WebSocket(`${url}${query}`, {
      headers: headers ?? { Authorization: `Bearer ${place.apiKey}` }, ...more });
    this.socket.on('message', (data, isBinary) => {
      if (isBinary) {
        if (!this.texts.length) this.binaryBeforeReady += 1;
        this.out += data.toString('latin1');
      } else {
        this.texts.push(JSON.parse(data.toString()));
      }
    });
    this.socket.on('close', (code, reason) => { this.closed = { code, reason: reason.toString() }; });
    this.socket.on('error', (e) => { this.error = e; });
    this.socket.on('unexpected-response', (_, r) => {
      let body = '';
      r.on('data', (d) => { body += d; });
      r.on('end', () => { this.refused = { status: r.statusCode, body, type: r.headers['content-type'] }; });
    });
  }

  async until(condition, what, ms = 15_000) {
    const end = Date.now() + ms;
    for (;;) {
      const value = condition();
      if (value) return value;
      if (Date.now() > end) {
        throw new Error(`not within ${ms} ms: ${what}; out ${JSON.stringify(this.out.slice(-500))}, ` +
          `texts ${JSON.stringify(this.texts)}, closed ${JSON.stringify(this.closed)}, ${this.error ?? ''}`);
      }
      await new Promise((done) => setTimeout(done, 5));
    }
  }

  async ready() {
    await this.until(() => this.texts.some((t) => t.type === 'ready'), 'ready');
    return this;
  }

  type(text) { this.socket.send(Buffer.from(text)); }
  control(value) { this.socket.send(typeof value === 'string' ? value : JSON.stringify(value)); }
  shows(text) { return this.until(() => this.out.includes(text), `shows ${text}`); }
  text(type) { return this.until(() => this.texts.find((t) => t.type === type), `a frame ${type}`); }
  end() { return this.until(() => this.closed, 'closed'); }
  hangUp() { this.socket.terminate(); }
}

async function terminal(query, run, options) {
  const t = new Terminal(query, options);
  try {
    return await run(await t.ready());
  } finally {
    t.hangUp();
  }
}

test('frames: ready is first, output is binary', () => terminal('', async (t) => {
  assert.deepEqual(t.texts, [{ type: 'ready' }]);
  t.type('echo $((6 * 7))-$TERM\n');
  await t.shows('42-xterm-256color');
}));

test('frames: size from the query and by resize', () => terminal('?cols=100&rows=33', async (t) => {
  t.type('stty size\n');
  await t.shows('33 100');
  t.control({ type: 'resize', cols: 61, rows: 17 });
  t.type('stty size\n');
  await t.shows('17 61');
}));

test('frames: control frames that are no good leave the socket open', () => terminal('', async (t) => {
  t.control({ type: 'resize', cols: 0, rows: 10 });
  await t.until(() => t.texts.length === 2, 'an error frame');
  assert.deepEqual(t.texts[1], { type: 'error', message: 'Invalid dimensions: cols and rows must be positive' });
  t.control('not json');
  await t.until(() => t.texts.length === 3, 'a second error frame');
  assert.deepEqual(t.texts[2], { type: 'error', message: 'Invalid control message' });
  t.control({ type: 'whatever', x: 1 });
  t.type('echo still-$((1 + 1))\n');
  await t.shows('still-2');
  assert.equal(t.texts.length, 3);
}));

test('frames: exit, then close', () => terminal('', async (t) => {
  t.type('exit 9\n');
  assert.deepEqual(await t.text('exit'), { type: 'exit', code: 9 });
  assert.equal((await t.end()).code, 1000);
}));

test('frames: exit by a signal', () => terminal('', async (t) => {
  t.type('kill -KILL $$\n');
  assert.deepEqual(await t.text('exit'), { type: 'exit', code: 137, signal: 'SIGKILL' });
  await t.end();
}));

test('frames: a shell of choice', () => terminal('?shell=/bin/sh', async (t) => {
  t.type('echo "shell ${BASH_VERSION:-none}"\n');
  await t.shows('shell none');
}));

test('frames: a shell that is not there', async () => {
  const t = new Terminal('?shell=/no/such/shell');
  const { message } = await t.text('error');
  assert.match(message, /no\/such\/shell/);
  assert.equal((await t.end()).code, 1011);
});

test('frames: a named session is shared and replayed before ready', async () => {
  const name = freshName();
  await terminal(`?session=${name}`, async (one) => {
    one.type('echo first-$((1 + 1))\n');
    await one.shows('first-2');
    await terminal(`?session=${name}`, async (two) => {
      assert.equal(two.binaryBeforeReady, 1);
      assert.ok(two.out.includes('first-2'));
      two.type('echo both-$((2 + 2))\n');
      await two.shows('both-4');
      await one.shows('both-4');
    });
    one.type('echo alone-$((3 + 3))\n');
    await one.shows('alone-6');
  });
  await terminal('', async (again) => {
    assert.ok(again.out.includes('alone-6'));
    again.type('exit\n');
    await again.end();
  }, { headers: { Authorization: `Bearer ${place.apiKey}`, 'Session-Id': name } });
});

test('frames: the key in the query', () => terminal(
  `?cols=80&rows=24&authorization=${encodeURIComponent(`Bearer ${place.apiKey}`).replace('%20', '+')}`,
  async (t) => {
    t.type('echo in-$((4 + 4))\n');
    await t.shows('in-8');
  }, { headers: {} }));

for (const [what, query, options, status, error] of [
  ['no token', '', { headers: {} }, 401, 'Unauthorized'],
  ['a wrong token', '', { headers: { Authorization: 'Bearer no' } }, 401, 'Unauthorized'],
  ['cols that are no number', '?cols=x&rows=24', {}, 400, 'cols and rows must be valid numbers'],
  ['a session id out of form', '?session=a/b', {}, 400, 'Invalid session ID format'],
  ['a sandbox id out of form', '', { url: `${base.replace(/^http/, 'ws')}/v1/sandbox/NO/pty` }, 400,
    'Invalid sandbox ID format'],
]) refuses(what, query, options, status, error);

function refuses(what, query, options, status, error) {
  test(`frames: the upgrade is refused for ${what}`, async () => {
    const t = new Terminal(query, options);
    await t.until(() => t.refused, 'a refusal');
    assert.equal(t.refused.status, status);
    assert.deepEqual(JSON.parse(t.refused.body),
      { error, code: status === 401 ? 'unauthorized' : 'invalid_request' });
    t.hangUp();
  });
}

test('frames: no upgrade is 400', async () => {
  const r = await fetch(`${base}/v1/sandbox/${ID}/pty`, { headers: { Authorization: `Bearer ${place.apiKey}` } });
  assert.deepEqual([r.status, (await r.json()).error], [400, 'WebSocket upgrade required']);
});

test('frames: ping is answered', () => terminal('', async (t) => {
  const pong = new Promise((done) => { t.socket.on('pong', (d) => done(d.toString())); });
  t.socket.ping('are you there');
  assert.equal(await pong, 'are you there');
}));

test('frames: a message in fragments is one message', () => terminal('', async (t) => {
  for (const [piece, fin] of [['echo fra', false], ['g-$((5 ', false], ['+ 5))\n', true]]) {
    t.socket.send(Buffer.from(piece), { binary: true, fin });
  }
  await t.shows('frag-10');
}));

test('frames: a text that is not UTF-8 closes with 1007', () => terminal('', async (t) => {
  t.socket.send(Buffer.from([0xff, 0xfe, 0x80]), { binary: false });
  assert.equal((await t.end()).code, 1007);
}));

test('frames: a message over the limit closes with 1009', () => terminal('', async (t) => {
  t.socket.on('error', () => {});
  t.socket.send(Buffer.alloc(20 * 1024 * 1024, 'x'));
  assert.equal((await t.end()).code, 1009);
}));

test('frames: a close is answered with its code', () => terminal('', async (t) => {
  t.socket.close(1000, 'bye');
  assert.equal((await t.end()).code, 1000);
}));

test('frames: a megabyte in and out, byte for byte', () => terminal('?shell=/bin/sh', async (t) => {
  // No newline in it would overflow the line discipline: raw mode, and a count on the other side.
  t.type("stty raw -echo; printf 'go%s\\n' ing; head -c 1000000 | cksum; stty sane\n");
  await t.shows('going');
  const bytes = Buffer.alloc(1_000_000, 'abcdefghij');
  for (let at = 0; at < bytes.length; at += 50_000) t.socket.send(bytes.subarray(at, at + 50_000));
  await t.until(() => /\d+ 1000000/.test(t.out), 'the checksum', 30_000);
  assert.match(t.out, new RegExp(`\\b${cksum(bytes)} 1000000`));
}));

// cksum(1): the CRC of POSIX.
function cksum(bytes) {
  let crc = 0;
  const add = (byte) => {
    crc ^= byte << 24;
    for (let i = 0; i < 8; i++) crc = crc & 0x80000000 ? (crc << 1) ^ 0x04c11db7 : crc << 1;
  };
  for (const b of bytes) add(b);
  for (let n = bytes.length; n > 0; n >>>= 8) add(n & 255);
  return (~crc) >>> 0;
}

test('frames: the upgrade without a key of its own is refused', async () => {
  const status = await new Promise((done, fail) => {
    const r = request(`${base}/v1/sandbox/${ID}/pty`, { headers: {
      Authorization: `Bearer ${place.apiKey}`, Connection: 'Upgrade', Upgrade: 'websocket',
      'Sec-WebSocket-Version': '13' } }, (answer) => { answer.resume(); done(answer.statusCode); });
    r.on('error', fail);
    r.on('upgrade', () => fail(new Error('it was upgraded')));
    r.end();
  });
  assert.equal(status, 400);
});
