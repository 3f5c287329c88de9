// The tests by name, and where they run.
export const tests = new Map();

export const place = {
  workerUrl: process.env.WORKER_URL,
  apiKey: process.env.API_KEY,
  kind: process.env.KIND,
};

export function test(name, run) {
  if (tests.has(name)) throw new Error(`two tests are called ${name}`);
  tests.set(name, run);
}
