/** Waits that a signal ends. */

/** Pause between attempts: longer each time, and somewhat at random. */
export class Backoff {
  private next: number;

  constructor(
    private readonly least: number,
    private readonly most: number,
  ) {
    this.next = least;
  }

  step(): number {
    const now = this.next * (0.5 + Math.random() / 2);
    this.next = Math.min(2 * this.next, this.most);
    return now;
  }

  reset(): void {
    this.next = this.least;
  }

  /** Waits until the next attempt, or until `stop`. Throws the reason of the signal. */
  wait(signal?: AbortSignal, stop?: AbortSignal): Promise<void> {
    return sleep(this.step(), signal, stop);
  }
}

/** Pause between attempts of a request. */
export function retryBackoff(): Backoff {
  return new Backoff(50, 5_000);
}

/** Waits for some milliseconds, or until `stop`. Throws the reason of the signal. */
export function sleep(milliseconds: number, signal?: AbortSignal, stop?: AbortSignal): Promise<void> {
  return leaving(
    new Promise<void>((resolve) => {
      if (stop?.aborted) return resolve();
      const over = () => {
        clearTimeout(timer);
        stop?.removeEventListener("abort", over);
        signal?.removeEventListener("abort", over);
        resolve();
      };
      const timer = setTimeout(over, milliseconds);
      stop?.addEventListener("abort", over);
      signal?.addEventListener("abort", over);
    }),
    signal,
  );
}

/** Returns what a promise comes to, or throws the reason of the signal. The promise goes on. */
export function leaving<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise;
  return new Promise<T>((resolve, reject) => {
    const left = () => reject(signal.reason);
    if (signal.aborted) left();
    else signal.addEventListener("abort", left);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", left));
  });
}

/** A condition that several wait for: each change wakes all of them. */
export class News {
  private waiting: (() => void)[] = [];

  announce(): void {
    const woken = this.waiting;
    this.waiting = [];
    for (const wake of woken) wake();
  }

  /** Waits for the next change, or until `stop`. Throws the reason of the signal. */
  wait(signal?: AbortSignal, stop?: AbortSignal): Promise<void> {
    if (stop?.aborted) return Promise.resolve();
    return leaving(
      new Promise<void>((resolve) => {
        const wake = () => {
          stop?.removeEventListener("abort", wake);
          resolve();
        };
        this.waiting.push(wake);
        stop?.addEventListener("abort", wake);
      }),
      signal,
    );
  }
}
