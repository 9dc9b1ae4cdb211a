// Which stretches of time can be shown of a counter, and in which steps: its roll-ups say.

import type { Counter, Rollup } from './types';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The buckets of time that a roll-up may have, the finest first. */
const UNITS = ['minute', 'hour', 'day', 'week', 'month'];

/** Steps of a series: how the API calls them, and the bucket that they are made of. */
export const STEPS = [
  { step: '1m', unit: 'minute', ms: MINUTE, words: 'a minute' },
  { step: '15m', unit: 'minute', ms: 15 * MINUTE, words: '15 minutes' },
  { step: '1h', unit: 'hour', ms: HOUR, words: 'an hour' },
  { step: '1d', unit: 'day', ms: DAY, words: 'a day' },
  { step: '1w', unit: 'week', ms: 7 * DAY, words: 'a week' },
  { step: '1mo', unit: 'month', ms: 30 * DAY, words: 'a month' },
] as const;
export type Step = (typeof STEPS)[number];

export const RANGES = [
  { name: '1h', ms: HOUR, words: 'the last hour' },
  { name: '24h', ms: DAY, words: 'the last 24 hours' },
  { name: '7d', ms: 7 * DAY, words: 'the last 7 days' },
  { name: '30d', ms: 30 * DAY, words: 'the last 30 days' },
  { name: '1y', ms: 365 * DAY, words: 'the last year' },
] as const;
export type Range = (typeof RANGES)[number];

/** What is shown at once: more is no line, but noise. */
const POINTS_MAX = 200;

/** Whether some roll-up has these dimensions, and a bucket of which the step is made. */
function keeps({ rollups }: Counter, by: string[], step: Step): boolean {
  const fits = (unit: string): boolean => UNITS.includes(unit) && UNITS.indexOf(unit) <= UNITS.indexOf(step.unit) && !(unit === 'week' && step.unit === 'month');
  return rollups.some((rollup) => by.every((dimension) => rollup.by.includes(dimension)) && rollup.by.some(fits));
}

/** The steps in which a range can be shown. */
export function steps(counter: Counter, by: string[], range: Range): Step[] {
  return STEPS.filter((step) => step.ms < range.ms && range.ms / step.ms <= POINTS_MAX && keeps(counter, by, step));
}

export function ranges(counter: Counter, by: string[] = []): Range[] {
  return RANGES.filter((range) => steps(counter, by, range).length > 0);
}

/** What is shown of a series: a stretch of time in steps. */
export interface Span {
  range: Range;
  step: Step;
  /** Where it begins instead: from there on its step is kept. */
  from?: string;
}

/** The first thing to show: the shortest stretch, in the finest steps. */
export function first(counter: Counter): Span | undefined {
  const [range] = ranges(counter);
  const [step] = range ? steps(counter, [], range) : [];
  return range && step && { range, step };
}

/** Whole steps up to the one that is under way. */
export function stretch({ range, step, from }: Span, now = Date.now()): { from: string; to: string; step: string } {
  const whole = Math.min(step.ms, DAY);
  const to = Math.floor(now / whole) * whole + whole;
  const iso = (ms: number): string => new Date(ms).toISOString();
  return { from: from ?? iso(to - range.ms), to: iso(to), step: step.step };
}

/** A roll-up without its bucket of time, and the bucket. */
function apart({ by }: Rollup): { set: string[]; unit: string | undefined } {
  const isTime = (word: string): boolean => UNITS.includes(word);
  return { set: by.filter((word) => !isTime(word)), unit: by.find(isTime) };
}

/** The dimensions by which values are kept apart, each set once, time left out. `timed`: only those that are kept by time as well. */
export function dimensions(counter: Counter, timed = false): string[][] {
  const sets = counter.rollups.map(apart).filter(({ unit }) => !timed || unit !== undefined).map(({ set }) => set);
  return [...new Map(sets.filter((set) => set.length > 0).map((set) => [set.join(), set])).values()];
}

/** Stretches of time that the largest keys are told of: how the API calls them. */
export const WINDOWS = [
  { window: 'all', words: 'all time' },
  { window: '24h', words: 'the last 24 hours' },
  { window: '1h', words: 'this hour' },
] as const;

export type Window = (typeof WINDOWS)[number];

/** The windows of which the largest keys can be told, and by which dimension; `''`: not by any. */
export function tops(counter: Counter): Map<string, Window[]> {
  const rollups = counter.rollups.map(apart);
  const offered = (all: boolean, able: typeof rollups): Window[] => {
    const hourly = able.some(({ unit }) => unit === 'hour' || unit === 'minute');
    return WINDOWS.filter(({ window }) => (window === 'all' ? all : hourly));
  };
  const found = new Map([['', offered(true, rollups)]]);
  for (const [by] of dimensions(counter).filter(({ length }) => length === 1)) {
    const able = rollups.filter(({ set }) => set.join() === by);
    found.set(by as string, offered(able.some(({ unit }) => unit === undefined), able));
  }
  return new Map([...found].filter(([, windows]) => windows.length > 0));
}

/** What to declare where there is nothing to show. The server would say the same, but to a browser a refusal is an error, and it tells. */
export const NO_SERIES = 'No line: that takes a roll-up by time, such as rollups: [[minute]].';
export const NO_PARTS = 'No parts: that takes a roll-up by a dimension, such as rollups: [[country]].';
