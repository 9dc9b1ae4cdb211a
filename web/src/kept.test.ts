import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Problem } from './api';
import { askSeries, during, instead, notKept, reason, wholeOf, type NotKept } from './kept';
import { RANGES, STEPS, type Span } from './spans';
import type { Counter } from './types';

const counter: Counter = { counterName: 'views', mode: 'display', measure: 'sum', dimensions: ['video'], rollups: [{ by: ['country', 'minute'], since: null }], timezone: 'UTC', total: 0 };
const [hour, day, week] = RANGES;
const [minute, quarter, hourly, daily] = STEPS;
const refused: NotKept = { keptBefore: '2026-11-15T17:00:00.000Z', from: '2026-11-15T17:00:00.000Z', step: '1h' };
const { signal } = new AbortController();

beforeEach(() => vi.stubGlobal('sessionStorage', { getItem: () => null }));
afterEach(() => vi.unstubAllGlobals());

/** A server that keeps no more than this; what it was asked. */
function server(...answers: object[]): URL[] {
  const asked: URL[] = [];
  vi.stubGlobal('fetch', (path: string) => {
    asked.push(new URL(path, 'http://tally/'));
    const body = answers.shift() ?? { points: [] };
    return Promise.resolve(new Response(JSON.stringify(body), { status: 'type' in body ? 422 : 200 }));
  });
  return asked;
}

const problem = (members: object): object => ({ type: '/problems/not-kept', detail: 'ask for step=1h', ...members });

test('only what is not kept is a reason to ask for something else', () => {
  expect(notKept(new Problem(422, 'no', problem(refused) as Record<string, unknown>))).toMatchObject(refused);
  expect(notKept(new Problem(422, 'no', { type: '/problems/not-rolled-up' }))).toBeUndefined();
  expect(notKept(new Error('no'))).toBeUndefined();
});

test('the same stretch is shown in steps that are kept, or else the shortest one that has them', () => {
  expect(instead(counter, [], { range: day, step: quarter }, refused)).toEqual({ range: day, step: hourly });
  expect(instead(counter, [], { range: hour, step: minute }, refused)).toEqual({ range: day, step: hourly });
  expect(instead(counter, [], { range: hour, step: minute }, { ...refused, step: '1d' })).toEqual({ range: week, step: daily });
});

test('where nothing is kept the stretch begins later', () => {
  const { step, ...gone } = refused;
  expect(instead(counter, [], { range: day, step: quarter }, gone)).toEqual({ range: day, step: quarter, from: refused.from });
});

test('what the server offers is asked for, and why is told', async () => {
  const asked = server(problem(refused));
  const span: Span = { range: day, step: quarter };
  const found = await askSeries('views:v1', counter, ['country'], span, signal);
  expect(asked.map(({ searchParams }) => [searchParams.get('step'), searchParams.get('by')])).toEqual([['15m', 'country'], ['1h', 'country']]);
  expect(found).toMatchObject({ span: { range: day, step: hourly }, refused });
  expect(reason(span, found)).toMatch(/^A point for 15 minutes is kept only from .*15 Nov 2026.* on\. Shown is a point for an hour\.$/);
  expect(during(found.span)).toBe('in the last 24 hours');
});

test('what was deleted is left out, and that is told', async () => {
  const { step, ...gone } = refused;
  const asked = server(problem(gone));
  const span: Span = { range: week, step: hourly };
  const found = await askSeries('views', counter, [], span, signal);
  expect(asked.map(({ searchParams }) => searchParams.get('from')).at(-1)).toBe(refused.from);
  expect(reason(span, found)).toMatch(/^Before .* nothing is kept\.$/);
  expect(during(found.span)).toMatch(/^since /);
});

test('a server that refuses everything is not asked for ever', async () => {
  const asked = server(...Array.from({ length: 20 }, () => problem(refused)));
  await expect(askSeries('views', counter, [], { range: day, step: quarter }, signal)).rejects.toThrow('ask for step=1h');
  expect(asked.length).toBeLessThan(10);
});

test('of a whole whose beginning is gone the rest is asked for, and the refusal not made again', async () => {
  const { step, ...gone } = refused;
  const asked = server(problem(gone));
  const ask = wholeOf('views', ['country']);
  expect(await ask(signal)).toMatchObject({ from: refused.from });
  expect(await ask(signal)).toMatchObject({ from: refused.from });
  expect(asked.map(({ searchParams }) => searchParams.get('from'))).toEqual([null, refused.from, refused.from]);
});
