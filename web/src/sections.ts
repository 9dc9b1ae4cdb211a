// What is shown of a counter or a key, each thing for itself: its series, its parts, where its number comes from, its history.

import { counterPath, get, query, refusal } from './api';
import { chart, lines } from './chart';
import { h, rows, say } from './dom';
import { moment } from './format';
import { every, turns, type Section } from './live';
import { bars, block, note } from './pieces';
import { NO_PARTS, NO_SERIES, RANGES, STEPS, dimensions, ranges, steps, stretch, type Range, type Step } from './spans';
import type { Count, Counter, Explanation, Generation, History, Series } from './types';
import { explain, generation } from './words';

/** A section that is asked again when the value has changed. */
export interface Answer {
  element: HTMLElement;
  refresh(signal: AbortSignal): Promise<void>;
}

/** How the value went: a chart with a choice of stretch, step and parts. */
export function seriesSection(id: string, counter: Counter): Section {
  const title = 'Over time';
  if (ranges(counter).length === 0) return { element: block(title, note(NO_SERIES)), live: () => {} };

  const drawing = chart();
  const said = note();
  const sets = dimensions(counter, true);
  const [from, step, by] = [select('Show'), select('a point for'), select('split by')];
  by.offer([['', 'nothing'], ...sets.map((set): [string, string] => [set.join(), set.join(' and ')])]);
  by.element.hidden = sets.length === 0;
  const element = block(title, h('div', { class: 'controls' }, from.element, step.element, by.element), drawing.element, said);

  /** What is offered and chosen: where something is split, it is kept for other stretches and steps. */
  const fit = (): { range: Range; step: Step } => {
    const split = by.control.value.split(',').filter(Boolean);
    from.offer(ranges(counter, split).map(({ name, words }) => [name, words]));
    const range = RANGES.find(({ name }) => name === from.control.value) ?? RANGES[0];
    step.offer(steps(counter, split, range).map(({ step, words }) => [step, words]));
    return { range, step: STEPS.find((found) => found.step === step.control.value) ?? STEPS[0] };
  };
  const turn = turns();
  const draw = async (signal: AbortSignal): Promise<void> => {
    const isLast = turn();
    const { range, step } = fit();
    const asked = { ...stretch(range, step), by: by.control.value, top: by.control.value && 6, fill: 'zero' };
    const series = await get<Series>(counterPath(id, 'series') + query(asked), signal);
    if (!isLast()) return;
    const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const zone = here === series.timezone ? '' : `Hours and days begin as in ${series.timezone}; times are shown as in ${here}.`;
    say(said, `${kept(series)}${zone}`);
    await drawing.show(series, lines(series, id));
  };
  return {
    element,
    live(signal) {
      const fail = ({ message }: Error): void => {
        if (!signal.aborted) say(said, message);
      };
      drawing.keepColours(signal);
      void every(5_000, signal, () => draw(signal), fail);
      for (const { control } of [from, step, by]) control.addEventListener('change', () => void draw(signal).catch(fail), { signal });
    },
  };
}

/** A roll-up that was added to a running counter knows nothing from before. */
const kept = ({ since }: Series): string => (since === null ? '' : `Kept since ${moment(since)}. `);

interface Select {
  element: HTMLElement;
  control: HTMLSelectElement;
  offer(choices: [string, string][]): void;
}

function select(label: string): Select {
  const control = h('select');
  let offered = '';
  const offer = (choices: [string, string][]): void => {
    if (offered === (offered = choices.join())) return;
    const chosen = control.value;
    control.replaceChildren(...choices.map(([value, text]) => h('option', { value, selected: value === chosen }, text)));
  };
  return { element: h('label', {}, `${label} `, control), control, offer };
}

/** What the value is made of, by each set of dimensions that its roll-ups keep apart. */
export function partsSection(id: string, counter: Counter): Answer {
  const sets = dimensions(counter).map((by) => ({ by, said: note(), ...bars('Nothing has counted yet.') }));
  const shown = sets.map(({ by, element, said }) => h('div', {}, h('h3', {}, `By ${by.join(' and ')}`), element, said));
  const element = block('Parts', ...(shown.length === 0 ? [note(NO_PARTS)] : [h('div', { class: 'parts' }, ...shown)]));
  const refresh = async (signal: AbortSignal): Promise<void> => {
    await Promise.all(
      sets.map(async ({ by, show, said }) => {
        try {
          const series = await get<Series>(counterPath(id, 'series') + query({ by: by.join(), top: 10 }), signal);
          const [whole] = series.points;
          show(parts(whole?.parts ?? {}).map(([name, value]) => ({ name, label: name.split('|').join(' · '), value, of: whole?.value ?? 0 })));
          say(said, kept(series));
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
