// `#/find/views:*`: the counters whose ids match, declared or not.

import { get, query } from './api';
import { h, rows, say } from './dom';
import { ago, count } from './format';
import { every, turns, type Section } from './live';
import { note } from './pieces';
import { link } from './routes';
import type { Config, Listed } from './types';

const PAGE = 100;

type Found = Listed['counters'][number];

/** Only the keys of one declared counter are kept in other orders. */
export async function findView(match: string, signal: AbortSignal): Promise<Section> {
  const { counters } = await get<Config>('v1/config', signal);
  const isCounter = counters.some(({ counterName, dimensions }) => dimensions.length > 0 && match === `${counterName}:*`);
  return view(match, isCounter ? ['name', 'value', 'changed'] : ['name']);
}

function view(match: string, orders: string[]): Section {
  const list = h('tbody');
  const said = note('Asking …');
  const order = h('select', {}, ...orders.map((order) => h('option', { value: order }, order)));
  const more = h('button', { hidden: true }, 'More');
  const found: Found[] = [];
  let cursor: string | null = null;
  const update = rows<Found>(list, ({ id }) => id, ({ id }) => {
    const value = h('td', { class: 'number' });
    const when = h('td', { class: 'note' });
    return {
      element: h('tr', {}, h('th', { scope: 'row' }, h('a', { href: link('key', id) }, id)), when, value),
      update: (item) => (say(value, count(item.value ?? 0)), say(when, item.changedAt ? ago(item.changedAt) : '')),
    };
  });
  const element = h(
    'div',
    {},
    h('h1', { tabindex: -1 }, match === '*' ? 'All counters' : `Counters like ${match}`),
    orders.length > 1 && h('div', { class: 'controls' }, h('label', {}, 'Order by ', order)),
    h('table', { class: 'wide' }, h('thead', {}, h('tr', {}, ...['Counter', 'Changed', 'Value'].map((title) => h('th', { scope: 'col' }, title)))), list),
    said,
    more,
  );
  const turn = turns();
  const page = async (signal: AbortSignal, from: string | null): Promise<void> => {
    const isLast = turn();
    const listed = await get<Listed>(`v1/counters${query({ match, order: order.value, limit: PAGE, cursor: from ?? undefined })}`, signal);
    if (!isLast()) return;
    if (from === null) found.length = 0;
    found.push(...listed.counters);
    cursor = listed.cursor;
    more.hidden = cursor === null;
    update(found);
    say(said, found.length === 0 ? `No id matches ${match}. A * stands for any text.` : '');
  };
  return {
    element,
    live(signal) {
      const fail = ({ message }: Error): void => {
        if (!signal.aborted) say(said, message);
      };
      // Whoever has turned pages reads, and is not interrupted.
      void every(3_000, signal, async () => void (found.length <= PAGE && (await page(signal, null))), fail);
      more.addEventListener('click', () => void page(signal, cursor).catch(fail), { signal });
      order.addEventListener('change', () => void page(signal, null).catch(fail), { signal });
    },
  };
}
