// How a view stays true: it asks again and again while somebody looks, and less often while nobody answers.

import { Problem } from './api';

/** Something on the screen. `live` is called whenever it comes to be looked at, and what it starts ends with the signal. */
export interface Section {
  element: HTMLElement;
  live(signal: AbortSignal): void;
}

export type Connection = 'live' | 'paused' | 'lost';
let tell: (state: Connection) => void = () => {};

export function onConnection(act: (state: Connection) => void): void {
  tell = act;
}

export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** Several questions may be under way at once; what was asked last is shown. Each call begins a turn and answers whether it still is the last. */
export function turns(): () => () => boolean {
  let last = 0;
  return () => {
    const turn = (last += 1);
    return () => turn === last;
  };
}

/** Does something now and then again, `ms` after it was done; what fails goes to `fail` and is tried again later and later. */
export async function every(
  ms: number,
  signal: AbortSignal,
  work: () => Promise<void>,
  fail: (problem: Problem) => void = () => {},
): Promise<void> {
  for (let failures = 0; !signal.aborted; ) {
    try {
      await work();
      failures = 0;
      if (!signal.aborted) tell('live');
    } catch (error) {
      if (signal.aborted) return;
      failures += 1;
      if (error instanceof Problem) fail(error);
      // No answer at all. Anything else is a fault of the page, and should be seen as one.
      else if (error instanceof TypeError && /fetch|network|load/i.test(error.message)) tell('lost');
      else throw error;
    }
    await pause(Math.min(ms * 2 ** Math.min(failures, 6), Math.max(ms, 15_000)), signal);
  }
}
