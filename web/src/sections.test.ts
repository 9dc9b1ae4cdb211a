import { expect, test, vi } from 'vitest';

vi.mock('uplot/dist/uPlot.min.css', () => ({}));
const { parts } = await import('./sections');

test('parts come with the greatest first, and the rest of them last', () => {
  expect(parts({ FR: 2, '(rest)': 50, DE: 9223372036854775807n, '(correction)': -3 })).toEqual([
    ['DE', 9223372036854775807n],
    ['FR', 2],
    ['(correction)', -3],
    ['(rest)', 50],
  ]);
});
