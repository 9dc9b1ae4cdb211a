// Answers for config, top, lists and series while the server has none: goes when it has them, together with its two uses in page.test.ts.

import type { Page, Route } from 'playwright-core';
import { parse } from '../src/api';
import type { Told } from '../src/types';
import { EventParser } from '../src/stream';
import type { Tally } from './traffic';

const rollups = (...sets: string[][]) => sets.map((by) => ({ by, since: null }));
const COUNTERS = [
  { counterName: 'views', mode: 'display', dimensions: ['video'], rollups: rollups(['country'], ['country', 'device'], ['minute'], ['country', 'minute']) },
  { counterName: 'views_by_country', mode: 'display', dimensions: ['country', 'device'], rollups: rollups(['hour']) },
  { counterName: 'likes', mode: 'transition', dimensions: ['content'], rollups: [] },
  { counterName: 'impressions', mode: 'persistent', dimensions: ['ad'], rollups: rollups(['country']) },
  { counterName: 'signups', mode: 'simple', dimensions: [], rollups: [] },
];

/** Every counter there is, from the first words of a watch. */
async function all({ url, token }: Tally): Promise<{ id: string; value: bigint }[]> {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const reader = (await fetch(`${url}/v1/counters/watch?match=*`, { headers })).body?.getReader();
  const parser = new EventParser();
  for (let piece = await reader?.read(); piece && !piece.done; piece = await reader?.read()) {
    const told = parser.push(new TextDecoder().decode(piece.value)).filter(({ name }) => name === 'value');
    if (told.length === 0) continue;
    void reader?.cancel();
    return told.map(({ data }) => parse<Told>(data)).map(({ id, value }) => ({ id, value: BigInt(value ?? 0) }));
  }
  return [];
}

const of = (name: string) => ({ id }: { id: string }): boolean => id === name || id.startsWith(`${name}:`);
const sum = (found: { value: bigint }[]): bigint => found.reduce((sum, { value }) => sum + value, 0n);

async function answer(tally: Tally, url: URL): Promise<unknown> {
  const counters = await all(tally);
  const largest = [...counters].sort((a, b) => (a.value < b.value ? 1 : -1));
  const path = decodeURIComponent(url.pathname);
  const [, top] = /^\/v1\/top\/(.*)$/.exec(path) ?? [];
  const [, id] = /^\/v1\/counters\/(.*)\/series$/.exec(path) ?? [];
  if (path === '/v1/config') {
    return { version: '1', counters: COUNTERS.map((counter) => ({ ...counter, measure: 'sum', timezone: 'UTC', total: sum(counters.filter(of(counter.counterName))) })) };
  }
  if (top !== undefined) {
    const found = largest.filter(of(top));
    return { counter: top, window: 'all', k: 5, total: sum(found), kind: 'exact', top: found.slice(0, Number(url.searchParams.get('k'))), asOf: '', generation: 0 };
  }
  if (path === '/v1/counters') {
    const pattern = new RegExp(`^${(url.searchParams.get('match') ?? '*').replace(/[.+?^${}()|[\]\\]/g, '\\$&').replace(/\*/g, '.*')}$`);
    const found = (url.searchParams.get('order') === 'name' ? counters : largest).filter(({ id }) => pattern.test(id));
    const limit = Number(url.searchParams.get('limit') ?? 100);
    return { counters: found.slice(0, limit).map((counter) => ({ ...counter, generation: 0, changedAt: new Date().toISOString() })), cursor: found.length > limit ? 'next' : null };
  }
  return id === undefined ? undefined : series(id, url, sum(counters.filter(of(id))));
}

function series(id: string, url: URL, whole: bigint): unknown {
  const asked = (name: string): string | null => url.searchParams.get(name);
  const [from, to, by] = [asked('from'), asked('to'), asked('by')];
  const step = { '1m': 60_000, '15m': 900_000, '1h': 3_600_000, '1d': 86_400_000 }[asked('step') ?? ''] ?? 0;
  const names = by === null ? [] : by.includes(',') ? ['DE|tv', 'US|phone', 'FR|tv', '(rest)'] : ['DE', 'US', 'FR', 'BR', '(rest)'];
  const parts = (value: number): object => (by === null ? {} : { parts: Object.fromEntries(names.map((name, at) => [name, Math.floor(value / 2 ** (at + 1))])) });
  const shared = { id, step: asked('step'), by: by?.split(',') ?? [], source: 'rollup', timezone: 'UTC', since: null, generation: 0, provisional: null };
  if (from === null || to === null) return { ...shared, from: null, to: null, points: [{ at: '', value: whole, ...parts(Number(whole)) }] };
  const length = (Date.parse(to) - Date.parse(from)) / step;
  const value = (n: number): number => Math.round((Number(whole) / length) * (1 + Math.sin(n / 6) * 0.6 + Math.sin(n * 1.7) * 0.25));
  const points = Array.from({ length }, (_, n) => ({ at: new Date(Date.parse(from) + n * step).toISOString(), value: value(n), ...parts(value(n)) }));
  return { ...shared, from, to, points };
}

const text = (found: unknown): string => JSON.stringify(found, (_, value: unknown) => (typeof value === 'bigint' ? `#${value}#` : value)).replace(/"#(-?\d+)#"/g, '$1');

/** What the server answers, or what it will. */
export async function ask(tally: Tally, path: string): Promise<string> {
  const headers = tally.token ? { authorization: `Bearer ${tally.token}` } : {};
  const response = await fetch(`${tally.url}/${path}`, { headers });
  if (response.status !== 404 && response.status !== 405) return await response.text();
  const found = await answer(tally, new URL(`${tally.url}/${path}`));
  return found === undefined ? await response.text() : text(found);
}

/** Answers for the server what it does not yet. */
export async function standIn(page: Page, tally: Tally): Promise<void> {
  const asked = /\/v1\/(config|top\/[^/]*|counters(\/[^/]*\/series)?)(\?.*)?$/;
  await page.route(asked, async (route: Route) => {
    const real = await route.fetch().catch(() => undefined);
    if (!real) return await route.abort().catch(() => {});
    if (real.status() !== 404 && real.status() !== 405) return await route.fulfill({ response: real }).catch(() => {});
    const found = await answer(tally, new URL(route.request().url()));
    await route.fulfill({ contentType: 'application/json', body: text(found) }).catch(() => {});
  });
}
