import assert from "node:assert/strict";
import { test as nodeTest } from "node:test";

/** Time that a test waits for what has to come, in ms: a failure, and never a measure. */
export const PATIENCE = 120_000;

export function test(name: string, body: () => Promise<void> | void): void {
  nodeTest(name, { timeout: PATIENCE }, body);
}

/** Returns what a promise is rejected with. A test may wait for it later. */
export function failure(promise: Promise<unknown>): Promise<Error> {
  return promise.then(
    (value) => assert.fail(`it has come to ${value}`),
    (error) => error as Error,
  );
}
