import { expect, test, vi } from 'vitest';
import type { Series } from './types';

vi.mock('uplot/dist/uPlot.min.css', () => ({}));
const { lines, summary } = await import('./chart');
const { trace } = await import('./pieces');

const series: Series = {
  from: '2026-11-15T17:00:00Z',
  to: '2026-11-15T19:00:00Z',
  timezone: 'UTC',
  since: null,
  points: [
    { at: '2026-11-15T17:00:00Z', value: 5, parts: { DE: 3, 'US|tv': 2 } },
    { at: '2026-11-15T18:00:00Z', value: 9, parts: { 'US|tv': 9 } },
  ],
};

test('parts are lines of their own, the largest first', () => {
  expect(lines(series, 'views')).toEqual([
    { label: 'US · tv', values: [2, 9] },
    { label: 'DE', values: [3, 0] },
  ]);
  const whole = { ...series, points: series.points.map(({ at, value }) => ({ at, value })) };
  expect(lines(whole, 'views')).toEqual([{ label: 'views', values: [5, 9] }]);
  expect(summary(whole, lines(whole, 'views'))).toMatch(/^views: 2 points from .*, least 0, most 9$/);
});

test('a line goes from the left to the right, the most at the top', () => {
  expect(trace([0, 5, 10])).toBe('M0.0 34.0L80.0 18.0L160.0 2.0');
  expect(trace([0, 0])).toBe('M0.0 34.0L160.0 34.0');
  expect(trace([])).toBe('');
});
