// What has happened before somebody opens the page: something for every box.

const VIDEOS = ['v1', 'v2', 'v3', 'v4', 'v5', 'v6', 'a:b'];
const COUNTRIES = ['DE', 'US', 'FR', 'BR', 'JP'];
const DEVICES = ['phone', 'tv', 'laptop'];
/** More than a number of JavaScript holds. */
export const LARGE = 4611686018427387903n;
const MINUTE_MS = 60_000;
/** More than the server remembers as candidates for the largest keys of an hour. */
const PAGES = 5_000;

export interface Tally {
  url: string;
  token?: string;
}

export async function send(tally: Tally, method: string, path: string, body?: unknown): Promise<Response> {
  const headers = { 'content-type': 'application/json', ...(tally.token && { authorization: `Bearer ${tally.token}` }) };
  const response = await fetch(`${tally.url}/${path}`, { method, headers, ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }) });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response;
}

/** The same each time: no chance in it. */
export async function happen(tally: Tally): Promise<void> {
  const now = Date.now();
  const at = (ago: number): string => new Date(now - ago).toISOString();
  const pick = <T>(list: T[], n: number): T => list[n % list.length] as T;
  const views = Array.from({ length: 600 }, (_, n) => ({
    type: 'video.viewed',
    session: `s${n % 40}`,
    seq: Math.floor(n / 40),
    // From an hour ago until now, so that nothing of it is late.
    occurredAt: at(((600 - n) / 600) * 55 * MINUTE_MS),
    dimensions: { video: pick(VIDEOS, Math.floor(Math.sqrt(n * 3)) * 5), country: pick(COUNTRIES, n % 7), device: pick(DEVICES, n % 5) },
  }));
  await send(tally, 'POST', 'v1/events', views);
  await send(tally, 'POST', 'v1/events', views.slice(-60));
  await send(tally, 'POST', 'v1/events', [
    { type: 'video.viewed', session: 'late', seq: 1, occurredAt: at(30 * MINUTE_MS), dimensions: { video: 'v1', country: 'DE', device: 'tv' } },
    { type: 'video.viewed', session: 'odd', seq: 1, dimensions: { video: 'v1' } },
    ...['ann', 'bob', 'cat'].map((user) => ({ type: 'content.liked', dimensions: { user, content: 'song' } })),
    { type: 'content.liked', dimensions: { user: 'ann', content: 'song' } },
    { type: 'content.unliked', dimensions: { user: 'dan', content: 'song' } },
    ...['e1', 'e2', 'e3', 'e1'].map((eventId) => ({ type: 'ad.shown', eventId, dimensions: { ad: 'a1' } })),
    { type: 'ad.shown', eventId: 'e2', dimensions: { ad: 'a2' } },
    ...Array.from({ length: 12 }, () => ({ type: 'user.joined' })),
  ]);
  const plays = Array.from({ length: 300 }, (_, n) => ({
    type: 'song.played',
    // From a day ago until now, more and more often.
    occurredAt: at((300 - n) ** 2 * 0.015 * MINUTE_MS),
    dimensions: { song: pick(['one', 'two', 'three'], Math.floor(Math.sqrt(n))), country: pick(COUNTRIES, n) },
  }));
  await send(tally, 'POST', 'v1/events', plays);
  const crawled = Array.from({ length: PAGES }, (_, n) => ({ type: 'page.crawled', dimensions: { page: n < 40 ? 'home' : `p${n}` } }));
  await send(tally, 'POST', 'v1/events', crawled);
  await send(tally, 'POST', 'v1/counters/visits/increment', { delta: 4711 });
  await send(tally, 'POST', 'v1/counters/large/increment', `{"delta":${LARGE}}`);
  const proposed = await send(tally, 'POST', 'v1/corrections', { reason: 'bots of the 15th', author: 'ann', deltas: [{ id: 'views:v1', delta: -3 }] });
  const { number } = (await proposed.json()) as { number: number };
  await send(tally, 'POST', `v1/corrections/${number}/apply`, { author: 'bob' });
}
