// `#/counter/views`: a declared counter, over all of its keys.

import { get, query } from './api';
import { h, say } from './dom';
import { total as words } from './format';
import { every, type Section } from './live';
import { BOX_WORDS, mode, shape } from './words';
import { block, boxes, note } from './pieces';
import { link } from './routes';
import { suggest } from './search';
import { explainSection, historySection, partsSection, type Answer } from './sections';
import { seriesSection } from './series';
import { follow } from './stream';
import { topSection } from './top';
import { BOXES, type Balance, type Config, type Counter, type Listed, type Told } from './types';

/** So many keys are watched by what changes; where there are more, the totals are asked for each second. */
const WATCHED_MAX = 100;

export async function counterView(name: string, signal: AbortSignal): Promise<Section> {
  const { counters } = await get<Config>('v1/config', signal);
  const counter = counters.find(({ counterName }) => counterName === name);
  if (counter) return declared(counter);
  const element = h('div', {}, h('h1', { tabindex: -1 }, name), note(`No counter is declared by the name ${name}.`), h('p', {}, h('a', { href: link('key', name) }, `Look at ${name} as a counter of its own`)));
  return { element, live: () => {} };
}

export function declared(counter: Counter): Section {
  const name = counter.counterName;
  const total = h('p', { class: 'total large' });
  const box = boxes(true);
  const series = seriesSection(name, counter);
  const top = counter.dimensions.length > 0 ? topSection(counter) : undefined;
  const answers: Answer[] = [partsSection(name, counter), ...(top ? [top] : [explainSection(name), historySection(name)])];
  const element = h(
    'div',
    {},
    h('h1', { tabindex: -1 }, name),
    h('p', { class: 'note' }, `${mode(counter.mode)}. Its ids are `, h('code', {}, shape(counter)), '.'),
    total,
    top && keySearch(counter),
    block('Where its entries ended', box.element, legend()),
    series.element,
    ...answers.map(({ element }) => element),
  );

  const draw = async (signal: AbortSignal): Promise<void> => {
    const [config, balance] = await Promise.all([get<Config>('v1/config', signal), get<Balance>('v1/balance', signal)]);
    say(total, words(config.counters.find(({ counterName }) => counterName === name)?.total ?? null));
    const account = balance.counters.find(({ counter }) => counter === name);
    if (account) box.show(account);
  };
  return {
    element,
    live(signal) {
      let isStale = true;
      void watch(counter, signal, () => (isStale = true));
      void every(500, signal, async () => {
        if (!isStale) return;
        isStale = false;
        await draw(signal);
      }, ({ message }) => say(total, message));
      void every(2_000, signal, async () => void (await Promise.all(answers.map((answer) => answer.refresh(signal)))));
      top?.listen(signal);
      series.live(signal);
    },
  };
}

/** Tells whenever something may have changed. */
async function watch(counter: Counter, signal: AbortSignal, tell: () => void): Promise<void> {
  const match = counter.dimensions.length > 0 ? `${counter.counterName}:*` : counter.counterName;
  const isSmall = async (): Promise<boolean> =>
    (await get<Listed>(`v1/counters${query({ match, limit: WATCHED_MAX, fields: 'id' })}`, signal)).cursor === null;
  try {
    if (await isSmall()) await follow<Told>(`v1/counters/watch${query({ match })}`, signal, tell);
  } catch {
    // What cannot be watched is asked for.
  }
  await every(1_000, signal, () => Promise.resolve(tell()));
}

function keySearch(counter: Counter): HTMLElement {
  const prefix = `${counter.counterName}:`;
  const list = h('datalist', { id: 'keys' });
  const input = h('input', { id: 'key', type: 'search', list: 'keys', placeholder: counter.dimensions.join(':'), autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', maxlength: 1024 });
  suggest(input, list, prefix);
  const open = (event: Event): void => {
    event.preventDefault();
    if (input.value !== '') location.hash = link('key', input.value.startsWith(prefix) ? input.value : prefix + input.value);
  };
  return h('form', { class: 'key', role: 'search', 'aria-label': `Keys of ${counter.counterName}`, submit: open }, h('label', { for: 'key' }, 'Find a key '), input, list, h('button', {}, 'Show'));
}

function legend(): HTMLElement {
  const rows = BOXES.map((box) => h('div', {}, h('dt', {}, h('span', { class: `swatch ${box}`, 'aria-hidden': 'true' }), box), h('dd', {}, BOX_WORDS[box])));
  return h('details', {}, h('summary', {}, 'What the boxes mean'), h('dl', { class: 'legend' }, ...rows));
}
