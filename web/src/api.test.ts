import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Problem, counterPath, get, hasToken, onRefused, parse, query, setToken } from './api';

const { signal } = new AbortController();

beforeEach(() => {
  const kept = new Map<string, string>();
  vi.stubGlobal('sessionStorage', {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => kept.set(name, value),
    removeItem: (name: string) => kept.delete(name),
  });
});
afterEach(() => vi.unstubAllGlobals());

function answer(status: number, body: string, type = 'application/json') {
  const fetch = vi.fn(() => Promise.resolve(new Response(body, { status, headers: { 'content-type': type } })));
  vi.stubGlobal('fetch', fetch);
  return fetch;
}

test('integers of 64 bits keep all of their digits', () => {
  const found = parse<Record<string, unknown>>(
    '{"most":9223372036854775807,"least":-9223372036854775808,"safe":9007199254740991,"small":5,"list":[4611686018427387904],"text":"at 9223372036854775807, \\"5\\"","part":0.12345678901234567}',
  );
  expect(found).toEqual({
    most: 9223372036854775807n,
    least: -9223372036854775808n,
    safe: 9007199254740991,
    small: 5,
    list: [4611686018427387904n],
    text: 'at 9223372036854775807, "5"',
    part: 0.12345678901234567,
  });
});

test('what the server refuses is thrown in its own words', async () => {
  answer(422, '{"type":"x","detail":"declare rollups: [[minute]]"}', 'application/problem+json');
  const detail = 'declare rollups: [[minute]]';
  await expect(get('v1/x', signal)).rejects.toEqual(new Problem(422, detail, { type: 'x', detail }));
});

test('an answer that is no problem document is told by its status', async () => {
  answer(502, '<html>');
  await expect(get('v1/x', signal)).rejects.toThrow('The server answered 502');
});

test('the token goes along, and a wrong one is forgotten and asked for', async () => {
  const asked = vi.fn();
  onRefused(asked);
  setToken('sesame');
  const fetch = answer(401, '{"detail":"no"}');
  await expect(get('v1/x', signal)).rejects.toThrow('no');
  expect(fetch).toHaveBeenCalledWith('v1/x', expect.objectContaining({ headers: { accept: 'application/json', authorization: 'Bearer sesame' } }));
  expect(asked).toHaveBeenCalledOnce();
  expect(hasToken()).toBe(false);
});

test('ids go into paths as one segment, and what is not given is left out of a query', () => {
  expect(counterPath('views:a%3Ab/c', 'series')).toBe('v1/counters/views%3Aa%253Ab%2Fc/series');
  expect(query({ match: 'a:*', limit: 5, cursor: undefined, by: '' })).toBe('?match=a%3A*&limit=5');
  expect(query({})).toBe('');
});
