// `#/`: every declared counter at a glance, and the first ones of those that nobody declared.

import { get, query, refusal } from './api';
import { h, rows, say, type Row } from './dom';
import { count, total as words } from './format';
import { askSeries, during } from './kept';
import { every, type Section } from './live';
import { block, boxes, note, sparkline, topBars } from './pieces';
import { link } from './routes';
import { NO_SERIES, first } from './spans';
import { truth } from './truth';
import type { Account, Balance, Config, Counter, Listed, Top } from './types';
import { equation, mode } from './words';

const EMPTY: Account = { received: 0, counted: 0, duplicate: 0, conflict: 0, rejected: 0, ignored: 0, late: 0, holds: true };

/** How often lines and keys are asked for; totals and boxes are each second. */
const DETAILS_MS = 2_000;
/** How often it is asked what recounts found and which rates have jumped: the one is each hour, the other each minute. */
const TRUTH_MS = 10_000;

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
  let declared = new Set<string>();
  const others = undeclared();
  const truths = truth();
  const element = h('div', {}, h('h1', { tabindex: -1 }, 'Counters'), summary, list, ...truths.map(({ element }) => element), others.element);

  const draw = async (signal: AbortSignal): Promise<void> => {
    const [config, balance] = await Promise.all([get<Config>('v1/config', signal), get<Balance>('v1/balance', signal)]);
    const accounts = new Map(balance.counters.map((account) => [account.counter, account]));
    update(config.counters.map((counter) => ({ counter, account: accounts.get(counter.counterName) ?? EMPTY })));
    declared = new Set(config.counters.map(({ counterName }) => counterName));
    say(summary, config.counters.length === 0 ? UNDECLARED : `All entries: ${equation(balance.total)}${balance.holds ? ', which adds up.' : ', which does not add up.'}`);
  };
  /** One after the other and only what is on the screen, however many counters there are. */
  const details = async (signal: AbortSignal): Promise<void> => {
    for (const card of cards.values()) {
      if (signal.aborted) return;
      if (card.element.isConnected && isOnScreen(card.element)) await card.detail(signal);
    }
    await others.refresh(signal, declared);
  };
  return {
    element,
    live(signal) {
      let due = 0;
      let truthDue = 0;
      const look = async (): Promise<void> => {
        await draw(signal);
        if (Date.now() < due) return;
        due = Date.now() + DETAILS_MS;
        await details(signal);
        if (Date.now() < truthDue) return;
        truthDue = Date.now() + TRUTH_MS;
        for (const { refresh } of truths) await refresh(signal);
      };
      void every(1_000, signal, look, ({ message }) => say(summary, message));
    },
  };
}

const UNDECLARED = 'No counter is declared yet. Declared ones count events by rules, in a file of YAML: tally serve --config counters.yaml';

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
  // Once it is known that something is not kept, it is not asked for again.
  let span = first(counter);
  // Where there is no series nothing is asked, so that nothing has to be refused.
  line.element.toggleAttribute('hidden', !span);
  if (!span) say(said, NO_SERIES);

  const drawLine = async (signal: AbortSignal): Promise<void> => {
    if (!span) return;
    const found = await askSeries(name, counter, [], span, signal);
    span = found.span;
    const { points } = found.series;
    const text = `${count(points.reduce((sum, { value }) => sum + BigInt(value), 0n))} ${during(span)}`;
    line.show(points, `${name}, a point for ${span.step.words}: ${text}`);
    say(said, text);
  };
  const detail = async (signal: AbortSignal): Promise<void> => {
    const told = (error: unknown): void => say(said, refusal(error));
    if (counter.dimensions.length > 0) await get<Top>(`v1/top/${encodeURIComponent(name)}?k=5`, signal).then(top.show, told);
    await drawLine(signal).catch(told);
  };
  return {
    element,
    detail,
    update: ({ counter, account }) => {
      say(total, words(counter.total));
      box.show(account);
    },
  };
}

function isOnScreen(element: Element): boolean {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

/** So many names are looked through for counters that nobody declared. */
const NAMES = 100;
const SHOWN = 8;

/** Counters that exist because somebody counted: the first ones by name. */
function undeclared(): { element: HTMLElement; refresh(signal: AbortSignal, declared: Set<string>): Promise<void> } {
  const list = h('ol', { class: 'bars' });
  const said = note();
  const update = rows<Listed['counters'][number]>(list, ({ id }) => id, ({ id }) => {
    const value = h('span', { class: 'number' });
    return { element: h('li', {}, h('a', { class: 'label', href: link('key', id) }, id), value), update: (item) => say(value, count(item.value ?? 0)) };
  });
  const all = h('p', { class: 'note' }, h('a', { href: link('find', '*') }, 'All counters by name'));
  const refresh = async (signal: AbortSignal, declared: Set<string>): Promise<void> => {
    try {
      const { counters } = await get<Listed>(`v1/counters${query({ match: '*', limit: NAMES, fields: 'id,value' })}`, signal);
      const others = counters.filter(({ id }) => !declared.has(id.split(':', 1)[0] ?? id));
      update(others.slice(0, SHOWN));
      say(said, others.length > 0 ? '' : `None among the first ${NAMES} names. Any id counts: curl -X POST ${location.origin}/v1/counters/visits/increment`);
    } catch (error) {
      say(said, refusal(error));
    }
  };
  return { element: block('Counters that nobody declared', list, said, all), refresh };
}
