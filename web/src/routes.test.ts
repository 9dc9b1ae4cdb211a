import { expect, test } from 'vitest';
import { link, parseRoute } from './routes';
import { destination } from './search';

test('an address leads back to what it was made from', () => {
  for (const id of ['views', 'views:v1', 'by:DE:a%3Ab', 'a/b?c#d', 'grüße & *', '%']) {
    for (const page of ['counter', 'key', 'find'] as const) {
      expect(parseRoute(link(page, id))).toEqual({ page, id });
    }
  }
  expect(link('key', 'views:v1')).toBe('#/key/views:v1');
});

test('what is no address of a view is the overview', () => {
  for (const hash of ['', '#', '#/', '#/key/', '#/nowhere/a', '#main']) expect(parseRoute(hash)).toEqual({ page: 'overview' });
  expect(parseRoute('#/key/50%')).toEqual({ page: 'key', id: '50%' });
});

test('what somebody typed leads to a counter, a key or a list', () => {
  expect(destination('views', ['views'])).toBe('#/counter/views');
  expect(destination('visits', ['views'])).toBe('#/key/visits');
  expect(destination('views:*', ['views'])).toBe('#/find/views:*');
});
