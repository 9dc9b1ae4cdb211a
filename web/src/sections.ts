// What is shown of a counter or a key, each thing for itself: its parts, where its number comes from, its history.

import { counterPath, get, query, refusal } from './api';
import { h, rows, say } from './dom';
import { moment } from './format';
import { wholeOf } from './kept';
import { bars, block, note } from './pieces';
import { NO_PARTS, dimensions } from './spans';
import type { Count, Counter, Explanation, Generation, History } from './types';
import { explain, generation, keptSince } from './words';

/** A section that is asked again when the value has changed. */
export interface Answer {
  element: HTMLElement;
  refresh(signal: AbortSignal): Promise<void>;
}

/** What the value is made of, by each set of dimensions that its roll-ups keep apart. */
export function partsSection(id: string, counter: Counter): Answer {
  const sets = dimensions(counter).map((by) => ({ ask: wholeOf(id, by), by, said: note(), ...bars('Nothing has counted yet.') }));
  const shown = sets.map(({ by, element, said }) => h('div', {}, h('h3', {}, `By ${by.join(' and ')}`), element, said));
  const element = block('Parts', ...(shown.length === 0 ? [note(NO_PARTS)] : [h('div', { class: 'parts' }, ...shown)]));
  const refresh = async (signal: AbortSignal): Promise<void> => {
    await Promise.all(
      sets.map(async ({ ask, show, said }) => {
        try {
          const { series, from } = await ask(signal);
          const [whole] = series.points;
          show(parts(whole?.parts ?? {}).map(([name, value]) => ({ name, label: name.split('|').join(' · '), value, of: whole?.value ?? 0 })));
          say(said, keptSince(from ?? series.since));
        } catch (error) {
          say(said, refusal(error));
        }
      }),
    );
  };
  return { element, refresh };
}

/** The greatest first; what is beyond them, taken together, last. */
export function parts(found: Record<string, Count>): [string, Count][] {
  const isRest = (name: string): number => Number(name === '(rest)');
  return Object.entries(found).sort(([one, a], [other, b]) => isRest(one) - isRest(other) || (a < b ? 1 : a > b ? -1 : 0));
}

/** Where the number comes from. */
export function explainSection(id: string): Answer {
  const list = h('ul', { class: 'sentences' });
  const update = rows<[number, string]>(list, ([at]) => String(at), () => {
    const element = h('li');
    return { element, update: ([, text]) => say(element, text) };
  });
  return {
    element: block('Where it comes from', list),
    async refresh(signal) {
      const found = await get<Explanation>(counterPath(id, 'explain'), signal).then(explain, (error: unknown) => [refusal(error)]);
      update([...found.entries()]);
    },
  };
}

/** What corrections did to it. */
export function historySection(id: string): Answer {
  const list = h('ol', { class: 'history' });
  const said = note();
  const update = rows<Generation>(list, ({ generation }) => String(generation), (step) => ({
    element: h(
      'li',
      {},
      h('p', {}, generation(step)),
      h('p', { class: 'note' }, `Generation ${step.generation}, ${moment(step.at)}. Reason: ${step.reason}`),
    ),
    update: () => {},
  }));
  return {
    element: block('History', list, said),
    async refresh(signal) {
      try {
        const { generations, next } = await get<History>(counterPath(id, 'history') + query({ limit: 20 }), signal);
        update(generations);
        const older = next === undefined ? '' : 'There are older ones; the API has them all.';
        say(said, generations.length === 0 ? 'No correction has touched it: what was counted is what it says.' : older);
      } catch (error) {
        say(said, refusal(error));
      }
    },
  };
}
