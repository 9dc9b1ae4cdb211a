import { expect, test } from 'vitest';
import { RANGES, STEPS, dimensions, first, ranges, steps, stretch, tops } from './spans';
import type { Counter } from './types';

function counter(...rollups: string[][]): Counter {
  const since = null;
  return { counterName: 'views', mode: 'display', measure: 'sum', dimensions: ['video'], rollups: rollups.map((by) => ({ by, since })), timezone: 'UTC', total: 0 };
}

const names = (found: readonly { name: string }[]): string[] => found.map(({ name }) => name);
const written = (found: readonly { step: string }[]): string[] => found.map(({ step }) => step);
const [hour, day, week, month, year] = RANGES;

test('only what a roll-up can answer is offered', () => {
  expect(names(ranges(counter(['country'])))).toEqual([]);
  expect(names(ranges(counter(['minute'])))).toEqual(['1h', '24h', '7d', '30d', '1y']);
  expect(names(ranges(counter(['country'], ['country', 'hour'])))).toEqual(['24h', '7d', '30d', '1y']);
  expect(written(steps(counter(['minute']), [], hour))).toEqual(['1m', '15m']);
  expect(written(steps(counter(['minute']), [], day))).toEqual(['15m', '1h']);
  expect(written(steps(counter(['hour']), [], week))).toEqual(['1h', '1d']);
  expect(written(steps(counter(['hour']), [], month))).toEqual(['1d', '1w']);
  expect(written(steps(counter(['week']), [], year))).toEqual(['1w']);
});

test('parts are offered where they are kept by time', () => {
  const found = counter(['minute'], ['country', 'hour']);
  expect(names(ranges(found, ['country']))).toEqual(['24h', '7d', '30d', '1y']);
  expect(names(ranges(found, ['device']))).toEqual([]);
});

test('a stretch is of whole steps and ends with the one under way', () => {
  const now = Date.parse('2026-11-15T18:00:30Z');
  expect(stretch({ range: hour, step: STEPS[0] }, now)).toEqual({ from: '2026-11-15T17:01:00.000Z', to: '2026-11-15T18:01:00.000Z', step: '1m' });
  expect(stretch({ range: year, step: STEPS[5] }, now)).toEqual({ from: '2025-11-16T00:00:00.000Z', to: '2026-11-16T00:00:00.000Z', step: '1mo' });
});

test('what is kept from some time on begins there', () => {
  const now = Date.parse('2026-11-15T18:00:30Z');
  expect(stretch({ range: day, step: STEPS[1], from: '2026-11-15T17:00:00.000Z' }, now)).toEqual({ from: '2026-11-15T17:00:00.000Z', to: '2026-11-15T18:15:00.000Z', step: '15m' });
});

test('the first thing to show is the shortest stretch in the finest steps', () => {
  expect(first(counter(['hour'], ['minute']))).toEqual({ range: hour, step: STEPS[0] });
  expect(first(counter(['country', 'hour']))).toEqual({ range: day, step: STEPS[2] });
  expect(first(counter(['country']))).toBeUndefined();
});

test('the largest keys are offered of windows and by dimensions that a roll-up has alone', () => {
  const offered = (...rollups: string[][]) => Object.fromEntries([...tops(counter(...rollups))].map(([by, windows]) => [by, windows.map(({ window }) => window)]));
  expect(offered()).toEqual({ '': ['all'] });
  expect(offered(['day'])).toEqual({ '': ['all'] });
  expect(offered(['country', 'device', 'minute'])).toEqual({ '': ['all', '24h', '1h'] });
  expect(offered(['country'])).toEqual({ '': ['all'], country: ['all'] });
  expect(offered(['country', 'hour'], ['device'])).toEqual({ '': ['all', '24h', '1h'], country: ['24h', '1h'], device: ['all'] });
  expect(offered(['country'], ['country', 'minute'], ['device', 'day'])).toEqual({ '': ['all', '24h', '1h'], country: ['all', '24h', '1h'] });
});

test('dimensions are named once and without time', () => {
  const found = counter(['country'], ['country', 'hour'], ['country', 'device'], ['minute'], ['browser']);
  expect(dimensions(found)).toEqual([['country'], ['country', 'device'], ['browser']]);
  expect(dimensions(found, true)).toEqual([['country']]);
});
