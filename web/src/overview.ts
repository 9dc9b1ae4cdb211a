// `#/`: every declared counter at a glance, and what changed last.

import { counterPath, get, query } from './api';
import { h, rows, say, type Row } from './dom';
import { ago, count } from './format';
import { every, type Section } from './live';
import { block, boxes, note, sparkline, topBars } from './pieces';
import { link } from './routes';
import { NO_SERIES, RANGES, finest, stretch } from './spans';
import type { Account, Balance, Config, Counter, Listed, Series, Top } from './types';
import { equation, mode } from './words';

const EMPTY: Account = { received: 0, counted: 0, duplicate: 0, conflict: 0, rejected: 0, ignored: 0, late: 0, holds: true };

/** How often lines and keys are asked for; totals and boxes are each second. */
const DETAILS_MS = 3_000;

type Declared = { counter: Counter; account: Account };

export function overview(): Section {
  const summary = h('p', { class: 'summary' }, 'Asking …');
  const list = h('div', { class: 'cards' });
  const cards = new Map<string, Card>();
  const update = rows<Declared>(
    list,
    ({ counter }) => counter.counterName,
    (declared) => {
      const made = card(declared.counter);
      cards.set(declared.counter.counterName, made);
      return made;
    },
  );
  const changed = changedLast();
  const element = h('div', {}, h('h1', { tabindex: -1 }, 'Counters'), summary, list, changed.element);

  const draw = async (signal: AbortSignal): Promise<void> => {
    const [config, balance] = await Promise.all([get<Config>('v1/config', signal), get<Balance>('v1/balance', signal)]);
    const accounts = new Map(balance.counters.map((account) => [account.counter, account]));
    update(config.counters.map((counter) => ({ counter, account: accounts.get(counter.counterName) ?? EMPTY })));
    say(summary, config.counters.length === 0 ? UNDECLARED : `All entries: ${equation(balance.total)}${balance.holds ? ', which adds up.' : ', which does not add up.'}`);
  };
  /** One after the other and only what is on the screen, however many counters there are. */
  const details = async (signal: AbortSignal): Promise<void> => {
    for (const card of cards.values()) {
      if (signal.aborted) return;
      if (card.element.isConnected && isOnScreen(card.element)) await card.detail(signal);
    }
  };
  return {
    element,
    live(signal) {
      let due = 0;
      const look = async (): Promise<void> => {
        await draw(signal);
        if (Date.now() < due) return;
        due = Date.now() + DETAILS_MS;
        await details(signal);
      };
      void every(1_000, signal, look, ({ message }) => say(summary, message));
      changed.live(signal);
    },
  };
}

const UNDECLARED =
  'No counter is declared. Any id counts without that: curl -X POST localhost:7070/v1/counters/visits/increment. Declared ones count events by rules: see “Getting started”.';

interface Card extends Row<Declared> {
  detail(signal: AbortSignal): Promise<void>;
}

function card(counter: Counter): Card {
  const name = counter.counterName;
  const total = h('p', { class: 'total' });
  const box = boxes();
  const line = sparkline();
  const said = note();
  const top = topBars(name);
  const element = h(
    'article',
    { class: 'card', 'data-counter': name },
    h('h2', {}, h('a', { href: link('counter', name) }, name)),
    h('p', { class: 'note' }, mode(counter.mode)),
    h('div', { class: 'figures' }, total, line.element),
    said,
    box.element,
    counter.dimensions.length > 0 && top.element,
  );
  const bucket = finest(counter);
  // Where there is no series nothing is asked, so that nothing has to be refused.
  line.element.toggleAttribute('hidden', !bucket);
  if (!bucket) say(said, NO_SERIES);

  const drawLine = async (signal: AbortSignal): Promise<void> => {
    const range = bucket && RANGES.find(({ ms }) => ms > bucket.ms);
    if (!range) return;
    const series = await get<Series>(counterPath(name, 'series') + query({ ...stretch(range, bucket), fill: 'zero' }), signal);
    const sum = series.points.reduce((sum, { value }) => sum + BigInt(value), 0n);
    const text = `${count(sum)} in ${range.words}`;
    line.show(series.points, `${name}, ${bucket.words}: ${text}`);
    say(said, text);
  };
  const detail = async (signal: AbortSignal): Promise<void> => {
    const told = (error: Error): void => {
      if (!('status' in error)) throw error;
      say(said, error.message);
    };
    if (counter.dimensions.length > 0) await get<Top>(`v1/top/${encodeURIComponent(name)}?k=5`, signal).then(top.show, told);
    await drawLine(signal).catch(told);
  };
  return {
    element,
    detail,
    update: ({ counter, account }) => {
      say(total, count(counter.total));
      box.show(account);
    },
  };
}

function isOnScreen(element: Element): boolean {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

/** Counters that nobody declared are seen here as well. */
function changedLast(): Section {
  const list = h('ol', { class: 'bars' });
  const said = note();
  const update = rows<Listed['counters'][number]>(list, ({ id }) => id, ({ id }) => {
    const value = h('span', { class: 'number' });
    const when = h('span', { class: 'percent' });
    return {
      element: h('li', {}, h('a', { class: 'label', href: link('key', id) }, id), when, value),
      update: (item) => {
        say(value, count(item.value ?? 0));
        say(when, item.changedAt === undefined ? '' : ago(item.changedAt));
      },
    };
  });
  const all = h('p', {}, h('a', { href: link('find', '*') }, 'All counters'));
  return {
    element: block('Changed last', list, said, all),
    live(signal) {
      const ask = async (): Promise<void> => {
        const { counters } = await get<Listed>(`v1/counters${query({ match: '*', order: 'changed', limit: 8 })}`, signal);
        update(counters);
        say(said, counters.length === 0 ? 'Nothing has counted yet.' : '');
      };
      void every(3_000, signal, ask, ({ message }) => say(said, message));
    },
  };
}
