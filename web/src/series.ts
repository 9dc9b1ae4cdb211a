// How a value went: a chart with a choice of stretch, step and parts.

import { chart, lines } from './chart';
import { h, say } from './dom';
import { moment } from './format';
import { askSeries, reason, type Found } from './kept';
import { every, turns, type Section } from './live';
import { block, note, select } from './pieces';
import { NO_SERIES, RANGES, STEPS, dimensions, ranges, steps, type Span } from './spans';
import type { Counter, Series } from './types';
import { keptSince } from './words';

const TITLE = 'Over time';

export function seriesSection(id: string, counter: Counter): Section {
  if (ranges(counter).length === 0) return { element: block(TITLE, note(NO_SERIES)), live: () => {} };

  const drawing = chart();
  const said = note();
  const choice = choices(counter);
  const notice = refusals();
  const element = block(TITLE, choice.element, notice.element, drawing.element, said);

  const turn = turns();
  const draw = async (signal: AbortSignal): Promise<void> => {
    const isLast = turn();
    const { by, span } = choice.read();
    const found = await askSeries(id, counter, by, span, signal);
    if (!isLast()) return;
    if (found.refused) {
      notice.show(span, found);
      choice.set(found.span);
    }
    say(said, `${keptSince(found.series.since)}${zone(found.series)}`);
    await drawing.show(found.series, lines(found.series, id));
  };
  return {
    element,
    live(signal) {
      const fail = ({ message }: Error): void => {
        if (!signal.aborted) say(said, message);
      };
      const redraw = (): void => void draw(signal).catch(fail);
      drawing.keepColours(signal);
      void every(5_000, signal, () => draw(signal), fail);
      choice.listen(signal, () => (notice.clear(), redraw()));
      notice.listen(signal, (span) => (choice.set(span), redraw()));
    },
  };
}

function zone({ timezone }: Series): string {
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return here === timezone ? '' : `Hours and days begin as in ${timezone}; times are shown as in ${here}.`;
}

interface Choices {
  element: HTMLElement;
  read(): { by: string[]; span: Span };
  /** What is shown is what is chosen, also where something else was asked for. */
  set(span: Span): void;
  listen(signal: AbortSignal, act: () => void): void;
}

/** What is offered and chosen: where something is split, it is kept for other stretches and steps. */
function choices(counter: Counter): Choices {
  const sets = dimensions(counter, true);
  const [range, step, by] = [select('Show'), select('a point for'), select('split by')];
  by.offer([['', 'nothing'], ...sets.map((set): [string, string] => [set.join(), set.join(' and ')])]);
  by.element.hidden = sets.length === 0;
  let from: string | undefined;
  const read = (): { by: string[]; span: Span } => {
    const split = by.control.value.split(',').filter(Boolean);
    range.offer(ranges(counter, split).map(({ name, words }) => [name, words]));
    const shown = RANGES.find(({ name }) => name === range.control.value) ?? RANGES[0];
    step.offer(steps(counter, split, shown).map(({ step, words }) => [step, words]));
    const point = STEPS.find((found) => found.step === step.control.value) ?? STEPS[0];
    return { by: split, span: { range: shown, step: point, ...(from !== undefined && { from }) } };
  };
  const set = (span: Span): void => {
    range.control.value = span.range.name;
    // What steps there are depends on the stretch.
    read();
    step.control.value = span.step.step;
    from = span.from;
  };
  const listen = (signal: AbortSignal, act: () => void): void => {
    const changed = (): void => ((from = undefined), act());
    for (const { control } of [range, step, by]) control.addEventListener('change', changed, { signal });
  };
  return { element: h('div', { class: 'controls' }, range.element, step.element, by.element), read, set, listen };
}

/** Says what is not kept, and offers the part of it that is. */
function refusals(): { element: HTMLElement; show(asked: Span, found: Found): void; clear(): void; listen(signal: AbortSignal, act: (span: Span) => void): void } {
  const said = h('span');
  const button = h('button', { class: 'small', type: 'button' }, 'Show what is kept of it');
  const element = h('p', { class: 'note notice', role: 'status' }, said, button);
  let offered: Span | undefined;
  const clear = (): void => {
    element.hidden = true;
  };
  const show = (asked: Span, found: Found): void => {
    offered = found.refused && { ...asked, from: found.refused.from };
    say(said, reason(asked, found));
    button.hidden = found.span.from !== undefined;
    element.hidden = false;
  };
  const take = (act: (span: Span) => void): void => {
    if (!offered) return;
    say(said, `Shown is what there is of it: from ${moment(offered.from ?? '')} on.`);
    button.hidden = true;
    act(offered);
  };
  clear();
  return { element, show, clear, listen: (signal, act) => button.addEventListener('click', () => take(act), { signal }) };
}
