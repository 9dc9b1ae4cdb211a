// The page in a real browser, on a real server (`cargo xtask web --test` starts both): what it shows is what the API answers.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type AxeTypes from 'axe-core';
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { parse } from '../src/api';
import { count, keyOf, moment, total as words } from '../src/format';
import { lines } from '../src/chart';
import { parts } from '../src/sections';
import type { Anomalies, Balance, Config, Envelope, Explanation, Recount, Series, Top, TopBy } from '../src/types';
import { certainty, equation, explain, noJump, recount } from '../src/words';
import { LARGE, happen, send, type Tally } from './traffic';

const given = (name: string): string => process.env[name] ?? fail(`${name} is not set; run cargo xtask web --test`);
const fail = (why: string): never => {
  throw new Error(why);
};
const tally: Tally = { url: given('TALLY_URL') };
const guarded: Tally = { url: given('TALLY_GUARDED_URL'), token: given('TALLY_TOKEN') };
const shots = given('TALLY_SHOTS');
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What the page and its files may come to over the wire, compressed. */
const BYTES_MAX = 60_000;
const PHONE: BrowserContextOptions = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };
const DESK: BrowserContextOptions = { viewport: { width: 1280, height: 900 } };

let browser: Browser;
let contexts: BrowserContext[] = [];

beforeAll(async () => {
  browser = await chromium.launch({ executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-proxy-server'] });
  await Promise.all([happen(tally), happen(guarded)]);
}, 60_000);
afterAll(async () => await browser?.close());
afterEach(async () => {
  await Promise.all(contexts.map((context) => context.close()));
  contexts = [];
});

const api = async <T>(path: string): Promise<T> => parse<T>(await (await send(tally, 'GET', path)).text());

interface Opened {
  page: Page;
  /** What the browser complained of. */
  errors: string[];
}

/** A new browser, without anything kept, that looks at the page. */
async function open(hash = '', options: BrowserContextOptions = DESK, on = tally): Promise<Opened> {
  const context = await browser.newContext({ locale: 'en-GB', ...options });
  contexts.push(context);
  const page = await context.newPage();
  const errors: string[] = [];
  page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('request', (request) => request.url().startsWith(`${on.url}/`) || errors.push(`it asks elsewhere: ${request.url()}`));
  await page.goto(`${on.url}/${hash}`);
  return { page, errors };
}

/** The text of an element, once it is there. */
const text = async (page: Page, selector: string): Promise<string> => (await page.locator(selector).first().textContent()) ?? '';

async function shows(page: Page, selector: string, expected: string): Promise<void> {
  await expect.poll(() => text(page, selector)).toBe(expected);
}

async function violations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  const found = await page.evaluate(() => (window as unknown as { axe: typeof AxeTypes }).axe.run());
  return found.violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary ?? ''}`));
}

test('the overview shows every declared counter as the API has it', async () => {
  const { page, errors } = await open();
  const { counters } = await api<Config>('v1/config');
  const balance = await api<Balance>('v1/balance');
  await shows(page, '.summary', `All entries: ${equation(balance.total)}, which adds up.`);
  expect(await page.locator('.card h2').allTextContents()).toEqual(counters.map(({ counterName }) => counterName));
  for (const { counterName, total, dimensions } of counters) {
    const card = `[data-counter="${counterName}"]`;
    await shows(page, `${card} .total`, words(total));
    const account = balance.counters.find(({ counter }) => counter === counterName) ?? fail(counterName);
    await shows(page, `${card} .equation`, equation(account));
    if (dimensions.length === 0) continue;
    const { top } = await api<Top>(`v1/top/${counterName}?k=5`);
    await expect.poll(() => page.locator(`${card} .bars .label`).allTextContents()).toEqual(top.map(({ id }) => keyOf(id, counterName)));
    expect(await page.locator(`${card} .bars .number`).allTextContents()).toEqual(top.map(({ value }) => count(value)));
  }
  await page.locator('[data-counter="views"] .spark[aria-label*="last hour"]').waitFor();
  expect(await text(page, '[data-counter="likes"] .figures + .note')).toContain('rollups: [[minute]]');
  expect(errors).toEqual([]);
});

test('the overview says whether counters are as counted again, and which rates have jumped', async () => {
  const report = parse<Recount>(await (await send(tally, 'POST', 'v1/reconciliation', {})).text());
  const { page, errors } = await open();
  const verdicts = 'section:has(> h2:text-is("As counted again"))';
  await expect.poll(() => page.locator(`${verdicts} li`).allTextContents()).toEqual(report.counters.map((counter) => `Alert: it keeps differing. ${recount(counter).text}`));
  expect(await page.locator(`${verdicts} strong:visible`).count(), 'no alert is raised').toBe(0);
  expect(await page.locator(`${verdicts} .note`).first().textContent()).toContain(`at ${report.position} of the log`);
  const found = await api<Anomalies>('v1/anomalies?limit=8');
  await shows(page, 'section:has(> h2:text-is("Rates that jumped")) .note', noJump(found));
  expect(errors).toEqual([]);
});

test('the first numbers are there soon', async () => {
  const { page } = await open();
  await page.locator('.card .total').first().waitFor();
  // Told and not asserted: how fast it is depends on what else the machine does.
  console.log(`first numbers after at most ${Math.round(await page.evaluate(() => performance.now()))} ms`);
});

test('a counter shows its boxes, its largest keys, and finds a key', async () => {
  const { page, errors } = await open('#/counter/views');
  const balance = await api<Balance>('v1/balance');
  const account = balance.counters.find(({ counter }) => counter === 'views') ?? fail('views');
  await shows(page, '.equation', equation(account, true));
  const { top } = await api<Top>('v1/top/views?k=20');
  await expect.poll(() => page.locator('section:has(> h2:text-is("Largest keys")) .label').allTextContents()).toEqual(top.map(({ id }) => keyOf(id, 'views')));
  await page.locator('#key').fill('v2');
  await page.keyboard.press('Enter');
  await shows(page, 'h1', 'views:v2');
  expect(await page.evaluate(() => document.activeElement?.tagName)).toBe('H1');
  expect(await page.title()).toBe('views:v2 – Tally');
  expect(errors).toEqual([]);
});

const largest = 'section:has(> h2:text-is("Largest keys"))';
const options = (page: Page, label: string): Promise<string[]> => page.locator(`${largest} label:has-text("${label}") option`).allTextContents();

test('the largest keys are told of a window and by a dimension, as the API has them', async () => {
  const { page, errors } = await open('#/counter/views');
  await page.locator(`${largest} .bars li`).first().waitFor();
  expect(await options(page, 'Of')).toEqual(['all time', 'the last 24 hours', 'this hour']);
  expect(await options(page, 'split by')).toEqual(['nothing', 'country']);
  await page.locator(largest).getByLabel('Of').selectOption('24h');
  const day = await api<Top>('v1/top/views?k=20&window=24h');
  await expect.poll(() => page.locator(`${largest} > .note`).textContent()).toContain(`Counted since ${moment(day.from ?? '')}.`);
  expect(await page.locator(`${largest} .bars .label`).allTextContents()).toEqual(day.top.map(({ id }) => keyOf(id, 'views')));
  expect(await page.locator(`${largest} .bars .number`).allTextContents()).toEqual(day.top.map(({ value }) => count(value)));
  await page.locator(largest).getByLabel('split by').selectOption('country');
  const { groups } = await api<TopBy>('v1/top/views?k=5&window=24h&by=country');
  await expect.poll(() => page.locator(`${largest} h3`).allTextContents()).toEqual(groups.map(({ value, total }) => `${value}${count(total ?? 0)}`));
  expect(await page.locator(`${largest} .parts .bars .number`).allTextContents()).toEqual(groups.flatMap(({ top }) => top.map(({ value }) => count(value))));
  await page.goto(`${tally.url}/#/counter/likes`);
  await page.locator(`${largest} .bars li`).first().waitFor();
  expect(await page.locator(`${largest} select:visible`).count(), 'where there is no choice, none is offered').toBe(0);
  expect(errors).toEqual([]);
});

test('an estimate is said to be one, with what others came to at most', async () => {
  const { page, errors } = await open('#/counter/crawled');
  // The hour may change under the test: then the last 24 hold what this one does not.
  await page.locator(largest).getByLabel('Of').selectOption('24h');
  const top = await api<Top>('v1/top/crawled?k=20&window=24h');
  expect(top.kind).toBe('estimate');
  expect(top.bound).toBeGreaterThan(0);
  await expect.poll(() => page.locator(`${largest} > .note`).textContent()).toContain(certainty(top));
  expect(await text(page, `${largest} .bars .label`)).toBe('home');
  expect(errors).toEqual([]);
});

/** What a browser itself says of an answer that is a refusal. */
const REFUSED = 'Failed to load resource: the server responded with a status of 422 (Unprocessable Entity)';

test('where a step is not kept the page says so, shows the one that is, and offers the part of it that is', async () => {
  const { page, errors } = await open('#/key/plays:one');
  const label = (): Promise<string | null> => page.locator('.chart').getAttribute('aria-label');
  await page.locator('.chart canvas').waitFor();
  expect(await page.getByLabel('a point for').inputValue(), 'the finest step').toBe('1m');
  expect(await page.locator('.notice').isVisible()).toBe(false);
  await page.getByLabel('Show').selectOption('24h');
  const notice = page.locator('.notice');
  await notice.waitFor();
  const refused = await fetch(`${tally.url}/v1/counters/plays:one/series?from=-23h&step=15m`);
  expect(refused.status).toBe(422);
  const problem = (await refused.json()) as { from: string; step: string };
  expect(await notice.locator('span').textContent()).toBe(`A point for 15 minutes is kept only from ${moment(problem.from)} on. Shown is a point for an hour.`);
  expect(await page.getByLabel('a point for').inputValue()).toBe(problem.step);
  await expect.poll(label).toContain(': 24 points');
  await page.locator('summary:text-is("As a table")').click();
  const whole = await api<Series>('v1/counters/plays%3Aone/series?from=-23h&step=1h&fill=zero');
  await expect.poll(() => page.locator('.table tbody td').allTextContents()).toEqual(whole.points.map(({ value }) => count(value)));
  await notice.getByRole('button').focus();
  await page.keyboard.press('Enter');
  await expect.poll(label).toContain(`from ${moment(problem.from)}`);
  expect(await page.getByLabel('a point for').inputValue()).toBe('15m');
  expect(await notice.textContent()).toContain('Shown is what there is of it');
  await page.getByLabel('Show').selectOption('7d');
  await expect.poll(() => notice.isVisible()).toBe(false);
  expect(errors, 'it is refused once').toEqual([REFUSED]);
});

test('the line of a card is of what is kept', async () => {
  const { page, errors } = await open();
  // Looked at from three hours ago, no minute of the last hour is kept any more.
  await page.clock.setFixedTime(Date.now() - 3 * 3_600_000);
  await page.reload();
  const card = page.locator('[data-counter="plays"]');
  await expect.poll(() => card.locator('.figures + .note').textContent()).toContain('in the last 24 hours');
  expect(await card.locator('.spark').getAttribute('aria-label')).toContain('a point for an hour');
  expect(errors.filter((error) => error !== REFUSED)).toEqual([]);
});

test('a key shows its value, its parts, its series, and where it comes from', async () => {
  const { page, errors } = await open('#/key/views:v1');
  const envelope = await api<Envelope>('v1/counters/views%3Av1');
  await shows(page, '.total', count(envelope.value));
  const explanation = await api<Explanation>('v1/counters/views%3Av1/explain');
  // Where the log stands is told as well, and goes on by itself.
  const still = (lines: string[]): string[] => lines.map((line) => line.replace(/\d+-\d+-\d+/g, '…'));
  await page.locator('.sentences li').first().waitFor();
  expect(still(await page.locator('.sentences li').allTextContents())).toHaveLength(explain(explanation).length);
  expect(await text(page, '.sentences')).toContain('1 correction has taken away 3');
  await shows(page, '.history p', `ann corrected it, applied by bob: −3, from ${count(BigInt(envelope.value) + 3n)} to ${count(envelope.value)}.`);
  expect(await text(page, '.history .note')).toContain('Reason: bots of the 15th');
  await page.locator('h3:text-is("By country")').waitFor();
  const whole = await api<Series>('v1/counters/views%3Av1/series?by=country&top=10');
  const expected = parts(whole.points[0]?.parts ?? {});
  const byCountry = page.locator('.parts > div').first();
  await expect.poll(() => byCountry.locator('.label').allTextContents()).toEqual(expected.map(([name]) => name));
  expect(await byCountry.locator('.number').allTextContents()).toEqual(expected.map(([, value]) => count(value)));
  await page.locator('.chart canvas').waitFor();
  await page.getByLabel('Show').selectOption('24h');
  await page.getByLabel('a point for').selectOption('1h');
  await page.getByLabel('split by').selectOption('country');
  await expect.poll(() => page.locator('.chart').getAttribute('aria-label')).toMatch(/, .*: 24 points/);
  await page.locator('summary:text-is("As a table")').click();
  const day = await api<Series>('v1/counters/views%3Av1/series?from=-23h&step=1h&by=country&top=6&fill=zero');
  const sum = (values: (number | null)[]): string => count(values.reduce<number>((sum, value) => sum + (value ?? 0), 0));
  const shown = lines(day, 'views:v1').map(({ label, values }) => [label, sum(values)]);
  // It is listed when it has been opened, which is a moment later.
  await expect.poll(() => page.locator('.table tbody tr').count()).toBe(24);
  const cells = await page.locator('.table tbody tr').evaluateAll((rows) => rows.map((row) => [...row.querySelectorAll('td')].map((cell) => Number(cell.textContent?.replace('−', '-')))));
  const titles = (await page.locator('.table thead th').allTextContents()).slice(1);
  expect(titles.map((title, at) => [title, sum(cells.map((row) => row[at] ?? 0))])).toEqual(shown);
  expect(errors).toEqual([]);
});

test('what is counted while one looks is on the screen at once', async () => {
  const { page, errors } = await open('#/key/visits');
  const before = await api<Envelope>('v1/counters/visits');
  await shows(page, '.total', count(before.value));
  await send(tally, 'POST', 'v1/counters/visits/increment', { delta: 5 });
  await shows(page, '.total', count(BigInt(before.value) + 5n));
  await page.goto(`${tally.url}/#/`);
  const joined = (await api<Envelope>('v1/counters/signups')).value;
  await shows(page, '[data-counter="signups"] .total', count(joined));
  await send(tally, 'POST', 'v1/events', { type: 'user.joined' });
  await shows(page, '[data-counter="signups"] .total', count(BigInt(joined) + 1n));
  expect(errors).toEqual([]);
});

test('nothing is asked while nobody looks, and all of it is true again when somebody does', async () => {
  const { page } = await open('#/key/visits');
  await shows(page, '#status', 'Live');
  const look = async (state: string): Promise<void> =>
    await page.evaluate((state) => {
      Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }, state);
  await look('hidden');
  await shows(page, '#status', 'Paused');
  const asked: string[] = [];
  page.on('request', (request) => asked.push(request.url()));
  const changed = (await (await send(tally, 'POST', 'v1/counters/visits/increment')).json()) as { value: number };
  expect(asked).toEqual([]);
  await look('visible');
  await shows(page, '.total', count(changed.value));
  await shows(page, '#status', 'Live');
});

test('a server that is gone is said to be, and is found again', async () => {
  const { page } = await open();
  await shows(page, '#status', 'Live');
  await page.context().setOffline(true);
  await shows(page, '#status', 'No answer from the server; trying again');
  await page.context().setOffline(false);
  await shows(page, '#status', 'Live');
});

test('a counter that nobody declared is found, with all of its digits', async () => {
  const { page, errors } = await open();
  await page.getByLabel('Find a counter by its id').fill('larg');
  await expect.poll(() => page.locator('#found option').count()).toBe(1);
  expect(await page.locator('#found option').getAttribute('value')).toBe('large');
  await page.getByLabel('Find a counter by its id').fill('large');
  await page.keyboard.press('Enter');
  await shows(page, '.total', count(LARGE));
  await page.getByLabel('Find a counter by its id').fill('v*s');
  await page.keyboard.press('Enter');
  await shows(page, 'tbody a', 'visits');
  await page.goto(`${tally.url}/#/find/views:*`);
  await page.getByLabel('Order by').selectOption('value');
  const { top } = await api<Top>('v1/top/views?k=5');
  await expect.poll(async () => (await page.locator('tbody a').allTextContents()).slice(0, 5)).toEqual(top.map(({ id }) => id));
  await page.goto(`${tally.url}/#/key/never`);
  await shows(page, '.sentences li', 'There is no never yet: nothing has counted for it. It reads as 0.');
  expect(errors).toEqual([]);
});

test('everything can be reached with the keyboard, in the order in which it is read', async () => {
  const { page, errors } = await open();
  await page.locator('[data-counter="views"] .bars a').first().waitFor();
  const focused = (): Promise<string> => page.evaluate(() => document.activeElement?.textContent?.trim() || document.activeElement?.id || '');
  const reached: string[] = [];
  for (let tabs = 0; tabs < 8; tabs += 1) {
    await page.keyboard.press('Tab');
    reached.push(await focused());
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement ?? document.body).outlineStyle);
    expect(outline, `${reached.at(-1)} shows that it has the focus`).not.toBe('none');
  }
  const { top } = await api<Top>('v1/top/views?k=5');
  expect(reached).toEqual(['To the content', 'Tally', 'search', 'API', 'views', ...top.slice(0, 3).map(({ id }) => keyOf(id, 'views'))]);
  await page.keyboard.press('Enter');
  await shows(page, 'h1', top[2]?.id ?? '');
  await page.goBack();
  await shows(page, 'h1', 'Counters');
  expect(errors).toEqual([]);
});

/** What is looked at: its address, what is there when it is ready, and what somebody does then. */
const VIEWS: [view: string, hash: string, ready: string, act?: (page: Page) => Promise<void>][] = [
  ['overview', '', '[data-counter="views"] .spark[aria-label]'],
  ['counter', '#/counter/views', '.chart canvas'],
  ['top-by', '#/counter/views', `${largest} .bars li`, splitTop],
  ['estimate', '#/counter/crawled', `${largest} .bars li`, lookAtADay],
  ['key', '#/key/views:v1', '.chart canvas'],
  ['not-kept', '#/key/plays:one', '.chart canvas', askForWhatIsNotKept],
  ['find', '#/find/views:*', 'tbody tr'],
];

async function splitTop(page: Page): Promise<void> {
  await page.locator(largest).getByLabel('split by').selectOption('country');
  await page.locator(`${largest} h3`).first().waitFor();
}

async function lookAtADay(page: Page): Promise<void> {
  await page.locator(largest).getByLabel('Of').selectOption('24h');
  await page.locator(`${largest} > .note:text("An estimate")`).waitFor();
}

async function askForWhatIsNotKept(page: Page): Promise<void> {
  await page.getByLabel('Show').selectOption('24h');
  await page.locator('.notice').waitFor();
  await page.locator('summary:text-is("As a table")').click();
}

test.each([
  ['light', DESK],
  ['dark', { ...DESK, colorScheme: 'dark' }],
  ['phone', PHONE],
  ['phone-dark', { ...PHONE, colorScheme: 'dark' }],
] as [string, BrowserContextOptions][])('labels, contrast and landmarks are right everywhere (%s)', async (name, options) => {
  for (const [view, hash, ready, act] of VIEWS) {
    const { page, errors } = await open(hash, options);
    await page.locator(ready).first().waitFor();
    await shows(page, '#status', 'Live');
    await act?.(page);
    expect(await violations(page), `${view} ${name}`).toEqual([]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), `${view} is no wider than the screen`).toBeLessThanOrEqual(0);
    await page.screenshot({ path: `${shots}/${view}-${name}.png`, fullPage: true });
    expect(errors.filter((error) => view !== 'not-kept' || error !== REFUSED)).toEqual([]);
  }
});

test('the whole page is small over the wire', async () => {
  const { page } = await open('about:blank');
  const session = await page.context().newCDPSession(page);
  const sizes = new Map<string, number>();
  const urls = new Map<string, string>();
  await session.send('Network.enable');
  session.on('Network.responseReceived', ({ requestId, response }) => void urls.set(requestId, new URL(response.url).pathname));
  session.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
    const path = urls.get(requestId) ?? '';
    if (!path.startsWith('/v1/')) sizes.set(path, encodedDataLength);
  });
  await page.goto(`${tally.url}/#/key/views:v1`);
  await page.locator('.chart canvas').waitFor();
  await expect.poll(() => [...sizes.keys()].filter((path) => path.endsWith('.js')).length).toBeGreaterThan(1);
  const whole = [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0);
  console.log(`the page is ${whole} bytes over the wire:`, Object.fromEntries(sizes));
  expect(whole).toBeLessThan(BYTES_MAX);
});

test('a server with a token is asked once somebody has typed it, and the tab remembers', async () => {
  const { page, errors } = await open('', DESK, guarded);
  await page.getByRole('dialog', { name: 'This server asks for a token' }).waitFor();
  expect(errors, 'nothing is asked in vain').toEqual([]);
  expect(await violations(page)).toEqual([]);
  await page.screenshot({ path: `${shots}/token.png` });
  await page.locator('#token').fill('not-the-token-at-all');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').waitFor();
  await page.locator('#token').fill(guarded.token ?? '');
  await page.keyboard.press('Enter');
  await page.locator('[data-counter="views"] .total').waitFor();
  await page.reload();
  await page.locator('[data-counter="views"] .total').waitFor();
  expect(await page.getByRole('dialog').count()).toBe(0);
  await page.goto(`${guarded.url}/#/key/visits`);
  await shows(page, '.total', '4,711');
  await send(guarded, 'POST', 'v1/counters/visits/increment');
  await shows(page, '.total', '4,712');
});
