import { expect, test } from 'vitest';
import { BUCKETS, NO_SERIES, RANGES, dimensions, finest, ranges, steps, stretch } from './spans';
import type { Counter } from './types';

function counter(...rollups: string[][]): Counter {
  const since = null;
  return { counterName: 'views', mode: 'display', measure: 'sum', dimensions: ['video'], rollups: rollups.map((by) => ({ by, since })), timezone: 'UTC', total: 0 };
}

const names = (found: readonly { name: string }[]): string[] => found.map(({ name }) => name);

test('roll-ups say how fine a series is', () => {
  expect(finest(counter(['country'], ['hour'], ['country', 'minute']))?.bucket).toBe('minute');
  expect(finest(counter(['country'], ['day']))?.step).toBe('1d');
  expect(finest(counter(['country']))).toBeUndefined();
  expect(NO_SERIES).toContain('rollups: [[minute]]');
});

test('only what can be answered is offered', () => {
  expect(names(ranges(counter(['minute'])))).toEqual(['1h', '24h', '7d', '30d']);
  expect(names(ranges(counter(['hour'])))).toEqual(['24h', '7d', '30d']);
  expect(names(ranges(counter(['country'])))).toEqual([]);
  const [hour, day] = RANGES;
  expect(steps(counter(['minute']), hour).map(({ step }) => step)).toEqual(['1m']);
  expect(steps(counter(['minute']), day).map(({ step }) => step)).toEqual(['1m', '1h']);
  expect(steps(counter(['hour']), day).map(({ step }) => step)).toEqual(['1h']);
});

test('a stretch is of whole steps and ends with the one under way', () => {
  const now = Date.parse('2026-11-15T18:00:30Z');
  expect(stretch(RANGES[0], BUCKETS[0], now)).toEqual({ from: '2026-11-15T17:01:00.000Z', to: '2026-11-15T18:01:00.000Z', step: '1m' });
});

test('dimensions are named once and without time', () => {
  const found = counter(['country'], ['country', 'hour'], ['country', 'device'], ['minute'], ['browser']);
  expect(dimensions(found)).toEqual([['country'], ['country', 'device'], ['browser']]);
  expect(dimensions(found, true)).toEqual([['country']]);
});
