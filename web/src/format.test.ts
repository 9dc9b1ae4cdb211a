import { expect, test } from 'vitest';
import { ago, amount, brief, count, keyOf, moment, percent, series, share, tick } from './format';

test('numbers are grouped, and none loses a digit', () => {
  expect(count(1234567)).toBe('1,234,567');
  expect(count(9223372036854775807n)).toBe('9,223,372,036,854,775,807');
  expect(count(-5)).toBe('−5');
  expect(brief(1_234_567)).toBe('1.2M');
  expect([amount(1, 'entry', 'entries'), amount(2n, 'entry', 'entries')]).toEqual(['1 entry', '2 entries']);
});

test('a share is between nothing and all, also where there is nothing', () => {
  expect([share(1, 4), share(1, 0), share(-1, 4), share(5n, 4n)]).toEqual([0.25, 0, 0, 1]);
});

test('a small part is not nothing, and a large one is not all', () => {
  expect([percent(1, 3), percent(1, 12), percent(0, 5), percent(5, 5)]).toEqual(['33 %', '8.3 %', '0 %', '100 %']);
  expect([percent(1, 1_000_000), percent(999_999, 1_000_000)]).toEqual(['< 0.1 %', '> 99.9 %']);
});

test('what is no share has none', () => {
  expect([percent(8, -16), percent(-3, 82), percent(9, 5), percent(0, 0)]).toEqual(['', '', '', '']);
});

test('moments are told by how long ago they were', () => {
  const now = Date.parse('2026-11-15T18:00:00Z');
  const before = (seconds: number): string => ago(new Date(now - 1000 * seconds).toISOString(), now);
  expect([before(1), before(42), before(600), before(7200)]).toEqual(['just now', '42 s ago', '10 min ago', '2 h ago']);
  expect(ago('never', now)).toBe('never');
});

test('a moment has seconds unless a minute begins', () => {
  expect([moment('2026-11-15T18:05:00'), moment('2026-11-15T18:05:07')]).toEqual(['15 Nov 2026, 18:05', '15 Nov 2026, 18:05:07']);
  expect(moment('never')).toBe('never');
});

test('an axis has times, and days where they begin', () => {
  const at = (text: string): number => new Date(text).getTime() / 1000;
  expect([tick(at('2026-11-15T18:05:00')), tick(at('2026-11-15T00:00:00'))]).toEqual(['18:05', '15 Nov']);
});

test('a key is shown without its counter and without escapes', () => {
  expect(keyOf('views:v1', 'views')).toBe('v1');
  expect(keyOf('by:DE:a%3Ab', 'by')).toBe('DE · a:b');
  expect(keyOf('by:DE:', 'by')).toBe('DE · (empty)');
  expect(keyOf('by:50%', 'by')).toBe('50%');
  expect(keyOf('other', 'views')).toBe('other');
});

test('lists are sentences', () => {
  expect([series([]), series(['a']), series(['a', 'b']), series(['a', 'b', 'c'])]).toEqual(['', 'a', 'a and b', 'a, b and c']);
});
