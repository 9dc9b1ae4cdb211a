// Which stretches of time can be shown of a counter: its roll-ups say how fine its series are.

import type { Counter } from './types';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The time buckets that a roll-up may have, the finest first. */
export const BUCKETS = [
  { bucket: 'minute', step: '1m', ms: MINUTE, words: 'by minute' },
  { bucket: 'hour', step: '1h', ms: HOUR, words: 'by hour' },
  { bucket: 'day', step: '1d', ms: DAY, words: 'by day' },
] as const;
export type Bucket = (typeof BUCKETS)[number];

export const RANGES = [
  { name: '1h', ms: HOUR, words: 'the last hour' },
  { name: '24h', ms: DAY, words: 'the last 24 hours' },
  { name: '7d', ms: 7 * DAY, words: 'the last 7 days' },
  { name: '30d', ms: 30 * DAY, words: 'the last 30 days' },
] as const;
export type Range = (typeof RANGES)[number];

const POINTS_MAX = 1_500;

const isTime = (dimension: string): boolean => BUCKETS.some(({ bucket }) => bucket === dimension);

/** The finest bucket that any roll-up has. */
export function finest(counter: Counter): Bucket | undefined {
  return BUCKETS.find(({ bucket }) => counter.rollups.some(({ by }) => by.includes(bucket)));
}

/** The steps that a range can be shown in: none finer than the roll-ups, and neither one point nor thousands. */
export function steps(counter: Counter, range: Range): Bucket[] {
  const least = finest(counter);
  if (!least) return [];
  return BUCKETS.filter(({ ms }) => ms >= least.ms && ms < range.ms && range.ms / ms <= POINTS_MAX);
}

export function ranges(counter: Counter): Range[] {
  return RANGES.filter((range) => steps(counter, range).length > 0);
}

/** Whole steps up to the one that is under way. */
export function stretch(range: Range, step: Bucket, now = Date.now()): { from: string; to: string; step: string } {
  const to = Math.floor(now / step.ms) * step.ms + step.ms;
  const iso = (ms: number): string => new Date(ms).toISOString();
  return { from: iso(to - range.ms), to: iso(to), step: step.step };
}

/** The dimensions by which values are kept apart, each set once, time left out. `timed`: only those that are kept by time as well. */
export function dimensions(counter: Counter, timed = false): string[][] {
  const sets = counter.rollups.filter(({ by }) => !timed || by.some(isTime)).map(({ by }) => by.filter((dimension) => !isTime(dimension)));
  const named = new Map(sets.filter((set) => set.length > 0).map((set) => [set.join(), set]));
  return [...named.values()];
}

/** What to declare where there is no series. The server would say the same, but to be refused is an error to a browser, and it tells. */
export const NO_SERIES = 'No line: that takes a roll-up by time, such as rollups: [[minute]].';
export const NO_PARTS = 'No parts: that takes a roll-up by a dimension, such as rollups: [[country]].';
