// Runs the tests of the programs in PROGRAMS one by one, as pytest asks for them: a name on a line
// of stdin, an answer {"name", "ok", "error", "ms"} on a line of stdout. One process for many
// tests, since loading what they need takes longer than most of them.
//
// From the environment: PROGRAMS, WORKER_URL, API_KEY, KIND of the box.
import { createInterface } from 'node:readline';
import { tests } from './registry.mjs';

for (const program of process.env.PROGRAMS.split(' ')) await import(`./${program}`);

const DEADLINE_MS = 60_000;

async function within(ms, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function run(name) {
  const begun = Date.now();
  const answer = { name, ok: false };
  try {
    if (!tests.has(name)) throw new Error('no such test');
    await within(DEADLINE_MS, tests.get(name)());
    answer.ok = true;
  } catch (e) {
    answer.error = `${e?.stack ?? e}${e?.details ? `\n${JSON.stringify(e.details)}` : ''}`;
    for (let c = e?.cause; c; c = c.cause) answer.error += `\ncaused by ${c?.stack ?? JSON.stringify(c)}`;
  }
  answer.ms = Date.now() - begun;
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

// A promise that nobody waits for must not take the other tests with it.
process.on('unhandledRejection', (e) => process.stderr.write(`unhandled: ${e?.stack ?? e}\n`));
for await (const line of createInterface({ input: process.stdin })) await run(line.trim());
process.exit(0);
