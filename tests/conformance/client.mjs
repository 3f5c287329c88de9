// The real client, CloudflareSandboxClient of @openai/agents-extensions, against the gateway.
import assert from 'node:assert/strict';
import { randomBytes, createHash } from 'node:crypto';
import { Manifest, dir, file } from '@openai/agents/sandbox';
import { CloudflareSandboxClient } from '@openai/agents-extensions/sandbox/cloudflare';
import { place, test } from './registry.mjs';

const client = (options = {}) =>
  new CloudflareSandboxClient({ workerUrl: place.workerUrl, apiKey: place.apiKey, ...options });

// A fresh sandbox for the time of a test.
async function inside(run, { manifest = {}, options = {} } = {}) {
  const session = await client(options).create({ manifest: new Manifest(manifest) });
  try {
    return await run(session);
  } finally {
    await session.delete();
  }
}

// What execCommand tells in its text: [exit code, output].
function told(text) {
  const head = text.slice(0, text.indexOf('\nOutput:\n'));
  const code = /^Process exited with code (-?\d+)$/m.exec(head);
  const id = /^Process running with session ID (\d+)$/m.exec(head);
  return {
    code: code && Number(code[1]),
    id: id && Number(id[1]),
    output: text.slice(text.indexOf('\nOutput:\n') + '\nOutput:\n'.length),
  };
}
const sh = async (session, cmd, more = {}) => told(await session.execCommand({ cmd, ...more }));
// What a terminal has told, once that holds; a yield may be over before a busy machine has got so far.
async function until(session, first, holds) {
  let { output } = first;
  for (let i = 0; i < 6 && !holds(output); i++) {
    output += told(await session.writeStdin({ sessionId: first.id, chars: '' })).output;
  }
  return output;
}
const put = (session, path, content) => session.materializeEntry({ path, entry: file({ content }) });
const sha = (bytes) => createHash('sha256').update(bytes).digest('hex');

// ---- create, running, resume, delete ----

test('create gives an id of the contract', () => inside(async (s) => {
  assert.match(s.state.sandboxId, /^[a-z2-7]{26}$/);
}));

test('create takes options that the gateway ignores', () => inside(async (s) => {
  assert.equal((await sh(s, 'echo well')).output, 'well');
}, { options: { exposedPorts: [8080], timeouts: { createTimeoutMs: 20_000, requestTimeoutMs: 20_000 } } }));

test('a wrong key is refused', async () => {
  await assert.rejects(client({ apiKey: 'not-the-token' }).create({ manifest: new Manifest({}) }), (e) => {
    assert.equal(e.details?.status ?? e.status, 401, JSON.stringify(e.details));
    return true;
  });
});

test('running', () => inside(async (s) => assert.equal(await s.running(), true)));

test('resume', () => inside(async (s) => {
  await put(s, 'kept.txt', 'kept');
  const again = await client().resume(s.state);
  assert.equal(again.state.sandboxId, s.state.sandboxId);
  assert.equal((await sh(again, 'cat kept.txt')).output, 'kept');
}));

test('delete ends everything and empties the workspace', async () => {
  const s = await client().create({ manifest: new Manifest({}) });
  await put(s, 'gone.txt', 'x');
  const { output } = await sh(s, 'sleep 4242 >/dev/null 2>&1 & echo $!');
  await s.delete();
  await s.delete();
  const again = await client().resume(s.state);
  assert.equal((await sh(again, `ls -A; kill -0 ${output} 2>/dev/null && echo alive`)).output, '');
  await again.delete();
});

// ---- exec ----

test('exec: status, stdout and stderr', () => inside(async (s) => {
  assert.deepEqual(await sh(s, 'echo out; echo err >&2; exit 3'), { code: 3, id: null, output: 'out\nerr' });
  assert.deepEqual(await sh(s, 'true'), { code: 0, id: null, output: '' });
  assert.equal((await sh(s, 'kill -9 $$')).code, 137);
}));

test('exec: an unknown program is 127 with a message', () => inside(async (s) => {
  const r = await sh(s, 'no-such-program-here');
  assert.equal(r.code, 127);
  assert.match(r.output, /no-such-program-here.*not found/);
}));

test('exec: environment and working folder of the manifest', () => inside(async (s) => {
  const r = await sh(s, 'printf "%s|" "$PWD" "$ODD" "$EMPTY"', { workdir: 'sub' });
  assert.equal(r.output, "/workspace/sub|it's \"a\" $b\nc|" + '|');
}, { manifest: { entries: { sub: dir({}) }, environment: { ODD: "it's \"a\" $b\nc", EMPTY: '' } } }));

test('exec: output before a timeout, and 124', () => inside(async (s) => {
  const r = await sh(s, 'echo before; sleep 30; echo after');
  assert.equal(r.code, 124);
  assert.match(r.output, /^before\n[^]*Command timed out after 3000ms/);
  assert.ok(!r.output.includes('after\n'));
  assert.equal((await sh(s, 'echo next')).output, 'next');
}, { options: { timeouts: { execTimeoutMs: 3000 } } }));

test('exec: bytes that are not UTF-8', () => inside(async (s) => {
  const r = await sh(s, "printf 'a\\000\\377b\\r\\n-'");
  assert.equal(r.output, 'a\0\ufffdb\r\n-');
}));

test('exec: characters are never torn', () => inside(async (s) => {
  const line = 'äöü€😀𝄞ñ漢';
  const r = await sh(s, `i=0; while [ $i -lt 40 ]; do printf '%s' '${line.repeat(60)}'; i=$((i + 1)); done; ` +
    `for b in '\\360' '\\237' '\\230' '\\200'; do printf "$b"; sleep 0.05; done`);
  assert.equal(r.output, line.repeat(2400) + '😀');
}));

test('exec: five megabytes of output', () => inside(async (s) => {
  const r = await sh(s, 'head -c 5000000 /dev/zero | tr "\\000" x');
  assert.equal(r.output.length, 5_000_000);
}));

test('exec: fifty in parallel', () => inside(async (s) => {
  const all = await Promise.all(Array.from({ length: 50 }, (_, i) =>
    sh(s, `echo out ${i}; echo err ${i} >&2; exit ${i}`)));
  all.forEach((r, i) => assert.deepEqual(r, { code: i, id: null, output: `out ${i}\nerr ${i}` }));
}));

test('exec: calls do not see the state of others', () => inside(async (s) => {
  await sh(s, 'cd /tmp; export LEAKED=1');
  assert.equal((await sh(s, 'echo "$PWD ${LEAKED-unset}"')).output, '/workspace unset');
}));

test('exec: as another user', () => inside(async (s) => {
  if (place.kind !== 'ns-root') return; // there only is one who may switch users
  const r = await sh(s, 'id -un', { runAs: 'nobody' });
  assert.deepEqual([r.code, r.output], [0, 'nobody']);
}));

// ---- files ----

test('manifest with files and folders', () => inside(async (s) => {
  const r = await sh(s, 'find . -type f | sort | xargs sha256sum; find . -type d | sort');
  const expected = [
    [Buffer.from([0, 255, 10, 13]), './bin/raw.dat'], ['deep', './src/a/b/c.txt'], ['top\n', './top.txt'],
  ].map(([content, name]) => `${sha(content)}  ${name}`);
  assert.equal(r.output, [...expected, '.', './bin', './empty', './src', './src/a', './src/a/b'].join('\n'));
}, { manifest: { entries: {
  'top.txt': file({ content: 'top\n' }),
  empty: dir({}),
  bin: dir({ children: { 'raw.dat': file({ content: Uint8Array.of(0, 255, 10, 13) }) } }),
  src: dir({ children: { a: dir({ children: { b: dir({ children: { 'c.txt': file({ content: 'deep' }) } }) } }) } }),
} } }));

test('editor: create, update, move and delete', () => inside(async (s) => {
  const editor = s.createEditor();
  await editor.createFile({ type: 'create_file', path: 'notes/plan.md', diff: '+one\n+two\n+three\n' });
  assert.equal((await sh(s, 'cat notes/plan.md')).output, 'one\ntwo\nthree');
  await editor.updateFile({ type: 'update_file', path: 'notes/plan.md', diff: '@@\n one\n-two\n+zwei\n three\n' });
  assert.equal((await sh(s, 'cat notes/plan.md')).output, 'one\nzwei\nthree');
  await editor.updateFile({ type: 'update_file', path: 'notes/plan.md', moveTo: 'done/plan.md',
    diff: '@@\n zwei\n-three\n+drei\n' });
  assert.equal((await sh(s, 'cat done/plan.md; ls notes')).output, 'one\nzwei\ndrei');
  await editor.deleteFile({ type: 'delete_file', path: 'done/plan.md' });
  assert.equal((await sh(s, 'ls done')).output, '');
}));

test('editor: what exists is not created again', () => inside(async (s) => {
  await put(s, 'there.txt', 'old');
  await assert.rejects(s.createEditor().createFile({ type: 'create_file', path: 'there.txt', diff: '+new\n' }),
    /already exists/);
  assert.equal((await sh(s, 'cat there.txt')).output, 'old');
}));

test('read and write of binary', () => inside(async (s) => {
  for (const size of [0, 1, 255, 65536, 3_000_001]) {
    const bytes = randomBytes(size);
    await put(s, 'blob', bytes);
    assert.equal(sha(await s.readFile({ path: 'blob' })), sha(bytes), `${size} bytes`);
  }
  const every = Uint8Array.from({ length: 256 }, (_, i) => i);
  await put(s, 'every.txt', every);
  assert.deepEqual(await s.readFile({ path: 'every.txt', maxBytes: 300 }), every);
  assert.deepEqual(await s.readFile({ path: 'every.txt', maxBytes: 3 }), every.subarray(0, 3));
}));

test('files that look like events are not decoded', () => inside(async (s) => {
  for (const content of ['data: x\n\n', ': comment\n', '\n event: chunk\ndata: aGk=\n\n']) {
    await put(s, 'sse', content);
    assert.equal(Buffer.from(await s.readFile({ path: 'sse' })).toString(), content);
  }
}));

test('odd names', () => inside(async (s) => {
  const names = ['sp ace%25.txt', 'a#b?c.txt', 'ü€😀.txt', '&=+:;@$,.txt', '-rf', '--help', "quo'te\".txt",
    '%2e%2e', '*?[x]', '$HOME`id`', '.hidden/..x', 'a|b<c>d', 'trailing.', '~'];
  for (const name of names) {
    await put(s, name, `content of ${name}`);
    assert.equal(Buffer.from(await s.readFile({ path: name })).toString(), `content of ${name}`);
  }
  const r = await sh(s, 'find . -type f -printf "%P\\n" | LC_ALL=C sort');
  assert.deepEqual(r.output.split('\n'), names.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))));
}));

test('a missing file is "not found"', () => inside(async (s) => {
  await assert.rejects(s.readFile({ path: 'no/such/file' }), (e) => {
    assert.equal(e.constructor.name, 'SandboxWorkspaceReadNotFoundError');
    return true;
  });
}));

test('a folder cannot be read, and is not written over', () => inside(async (s) => {
  await assert.rejects(s.readFile({ path: 'folder' }));
  await assert.rejects(put(s, 'folder', 'x'));
}, { manifest: { entries: { folder: dir({ children: { x: file({ content: 'x' }) } }) } } }));

test('paths outside the workspace are refused', () => inside(async (s) => {
  await assert.rejects(s.readFile({ path: '../etc/passwd' }));
  await assert.rejects(s.readFile({ path: '/etc/passwd' }));
  await sh(s, 'ln -s /etc out');
  await assert.rejects(s.readFile({ path: 'out/passwd' }));
}));

test('pathExists and directoryExists', () => inside(async (s) => {
  assert.deepEqual([await s.pathExists('d'), await s.pathExists('d/f'), await s.pathExists('d/g')],
    [true, true, false]);
  assert.deepEqual([await s.directoryExists('d'), await s.directoryExists('d/f'), await s.directoryExists('e')],
    [true, false, false]);
}, { manifest: { entries: { d: dir({ children: { f: file({ content: '' }) } }) } } }));

const PNG = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64');

test('viewImage', () => inside(async (s) => {
  await put(s, 'dot.png', PNG);
  const { type, image } = await s.viewImage({ path: 'dot.png' });
  assert.deepEqual([type, image.mediaType, Buffer.from(image.data)], ['image', 'image/png', PNG]);
}));

// ---- terminals ----

test('tty exec with writeStdin', () => inside(async (s) => {
  const first = await sh(s, 'echo from $(tty); stty size; cat', { tty: true, yieldTimeMs: 1500 });
  assert.ok(first.id, JSON.stringify(first));
  const begins = /from \/dev\/pts\/\d+\r?\n24 80/;
  assert.match(await until(s, first, (o) => begins.test(o)), begins);
  const echoed = told(await s.writeStdin({ sessionId: first.id, chars: 'grüße\n', yieldTimeMs: 1000 }));
  const twice = (o) => o.split('grüße').length === 3; // the echo, and what cat says
  const seen = await until(s, { ...echoed, id: first.id }, twice);
  assert.ok(twice(seen), seen);
  await s.writeStdin({ sessionId: first.id, chars: '\x04', yieldTimeMs: 300 });
  const end = told(await s.writeStdin({ sessionId: first.id, chars: 'exit 7\n', yieldTimeMs: 10_000 }));
  assert.equal(end.code, 7, JSON.stringify(end));
}));

test('tty exec: Ctrl-C', () => inside(async (s) => {
  const first = await sh(s, 'echo up-$((1 + 1)); sleep 60; echo "never $?"', { tty: true, yieldTimeMs: 500 });
  const { id } = first;
  await until(s, first, (o) => o.includes('up-2'));
  const r = told(await s.writeStdin({ sessionId: id, chars: '\x03', yieldTimeMs: 500 }));
  assert.ok(!r.output.includes('never 0'));
  const end = told(await s.writeStdin({ sessionId: id, chars: 'exit 3\n', yieldTimeMs: 10_000 }));
  assert.equal(end.code, 3, JSON.stringify(end));
}));

test('tty execs have terminals of their own, which hang up with them', () => inside(async (s) => {
  const both = await Promise.all([1, 2].map((i) =>
    sh(s, `echo "tty $(tty)."; exec sleep 77${i}1`, { tty: true, yieldTimeMs: 1000 })));
  const name = (o) => /tty (\/dev\/pts\/\d+)\./.exec(o)?.[1];
  const names = (await Promise.all(both.map((r) => until(s, r, name)))).map(name);
  assert.ok(names[0] && names[1] && names[0] !== names[1], JSON.stringify(both));
  await s.close();
  const again = await client().resume(s.state);
  const left = 'pgrep -f "sleep 77[12]1"'; // they hang up when the gateway hears of it
  assert.equal((await sh(again, `for i in $(seq 100); do ${left} >/dev/null || break; sleep 0.1; done; ${left}`)).output, '');
}));

// ---- archives ----

const SETUP = `
mkdir -p a/b empty "$(printf 'deep%.0s/' $(seq 1 40))" && printf data > a/b/f && chmod 750 a/b/f
ln a/b/f hard && ln -s a/b/f soft && ln -s "$(printf 'long%.0s' $(seq 1 40))" farlink && mkfifo pipe
printf x > "$(printf 'n%.0s' $(seq 1 200))" && printf y > "$(printf 'ü%.0s' $(seq 1 90)).txt"
printf z > "sp ace"; printf '\\000\\377' > bytes; : > none`;
const LIST = `find . ! -type p -printf '%P %y %m %l ' -exec sh -c '[ ! -f "$0" ] || cat "$0" | sha256sum' {} \\; -printf '\\n' |
  LC_ALL=C sort`;

test('persist and hydrate: a round trip', async () => {
  const s = await client().create({ manifest: new Manifest({}) });
  assert.equal((await sh(s, SETUP)).code, 0);
  const before = (await sh(s, LIST)).output;
  const tar = await s.persistWorkspace();
  await s.delete();
  const again = await client().create({ manifest: new Manifest({}) });
  assert.equal((await sh(again, 'ls -A')).output, '');
  await put(again, 'other', 'stays');
  await again.hydrateWorkspace(tar);
  assert.equal((await sh(again, 'cat other; rm other')).output, 'stays');
  assert.equal((await sh(again, LIST)).output, before);
  await again.delete();
});

test('persist leaves out what is ephemeral', () => inside(async (s) => {
  const tar = await s.persistWorkspace();
  await sh(s, 'rm -rf keep.txt cache');
  await s.hydrateWorkspace(tar);
  assert.equal((await sh(s, 'find . -type f')).output, './keep.txt');
}, { manifest: { entries: {
  'keep.txt': file({ content: 'k' }),
  cache: dir({ ephemeral: true, children: { 'c.bin': file({ content: 'c' }) } }),
} } }));

test('persist: ten megabytes', () => inside(async (s) => {
  await sh(s, 'head -c 10000000 /dev/urandom > big');
  const { output } = await sh(s, 'sha256sum < big');
  const tar = await s.persistWorkspace();
  await sh(s, 'rm big');
  await s.hydrateWorkspace(tar);
  assert.equal((await sh(s, 'sha256sum < big')).output, output);
}));

// ---- mounts ----

test('a mount that fails says why', () => inside(async (s) => {
  await assert.rejects(
    s.mountBucket({ bucket: 'b', mountPath: '/workspace/m', options: { endpoint: 'http://127.0.0.1:1', provider: 's3' } }),
    (e) => {
      assert.equal(e.constructor.name, 'SandboxMountError');
      assert.match(JSON.stringify(e.details), /mount failed: ./);
      return true;
    });
}));
