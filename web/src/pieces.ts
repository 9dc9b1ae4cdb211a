// Small pieces that several views have: a note, bars, boxes, a line without axes.

import { h, rows, say, svg } from './dom';
import { count, keyOf, percent, share } from './format';
import { link } from './routes';
import { BOXES, type Account, type Count, type Point, type Ranked } from './types';
import { equation } from './words';

export function note(text = ''): HTMLParagraphElement {
  return h('p', { class: 'note' }, text);
}

/** A heading and what belongs to it. */
export function block(title: string, ...children: (Node | string)[]): HTMLElement {
  return h('section', { class: 'block' }, h('h2', {}, title), ...children);
}

interface Bar {
  name: string;
  label: string;
  value: Count;
  /** What all of them are shares of. */
  of: Count;
  href?: string;
}

/** Named values, the length of each bar its share of the largest. */
export function bars(empty: string): { element: HTMLElement; show: (items: Bar[]) => void } {
  const list = h('ol', { class: 'bars' });
  const nothing = note(empty);
  let most: Count = 0;
  const update = rows<Bar>(
    list,
    ({ name }) => name,
    ({ label, href }) => {
      const fill = h('span', { class: 'fill' });
      const value = h('span', { class: 'number' });
      const part = h('span', { class: 'percent' });
      const title = href === undefined ? h('span', { class: 'label' }, label) : h('a', { class: 'label', href }, label);
      return {
        element: h('li', {}, fill, title, part, value),
        update: (item) => {
          fill.style.width = `${100 * share(item.value, most)}%`;
          say(part, percent(item.value, item.of));
          say(value, count(item.value));
        },
      };
    },
  );
  const show = (items: Bar[]): void => {
    most = items.reduce<Count>((most, { value }) => (value > most ? value : most), 0);
    update(items);
    nothing.hidden = items.length > 0;
  };
  nothing.hidden = true;
  return { element: h('div', {}, list, nothing), show };
}

/** The largest keys of a counter. */
export function topBars(name: string, empty = 'No key has counted yet.'): { element: HTMLElement; show: (top: Ranked) => void } {
  const { element, show } = bars(empty);
  const bar = (of: Count) => ({ id, value }: { id: string; value: Count }): Bar => ({ name: id, label: keyOf(id, name), value, of, href: link('key', id) });
  return { element, show: ({ total, top }) => show(top.map(bar(total ?? 0))) };
}

export interface Select {
  element: HTMLElement;
  control: HTMLSelectElement;
  /** Replaces the choices; what was chosen stays so if it still can be. */
  offer(choices: [value: string, text: string][]): void;
}

export function select(label: string): Select {
  const control = h('select');
  let offered = '';
  const offer = (choices: [string, string][]): void => {
    if (offered === (offered = choices.join())) return;
    const chosen = control.value;
    control.replaceChildren(...choices.map(([value, text]) => h('option', { value, selected: value === chosen }, text)));
  };
  return { element: h('label', {}, `${label} `, control), control, offer };
}

/** Where all entries ended: a bar of its boxes, and the same as a sum. */
export function boxes(all = false): { element: HTMLElement; show: (account: Account) => void } {
  const parts = BOXES.map((box) => h('span', { class: `box ${box}` }));
  const text = h('p', { class: 'equation' });
  const show = (account: Account): void => {
    BOXES.forEach((box, at) => {
      const part = parts[at];
      if (!part) return;
      part.style.flexGrow = String(share(account[box], account.received));
      part.hidden = account[box] == 0;
    });
    say(text, equation(account, all));
    text.classList.toggle('wrong', !account.holds);
  };
  return { element: h('div', { class: 'boxes' }, h('div', { class: 'stack', 'aria-hidden': 'true' }, ...parts), text), show };
}

const WIDTH = 160;
const HEIGHT = 36;

/** A line without axes; its label says what it shows. */
export function sparkline(): { element: SVGSVGElement; show: (points: Point[], what: string) => void } {
  const area = svg('path', { class: 'area' });
  const line = svg('path', { class: 'line' });
  const element = svg('svg', { class: 'spark', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-hidden': 'true' }, area, line);
  const show = (points: Point[], what: string): void => {
    const path = trace(points.map(({ value }) => Number(value)));
    line.setAttribute('d', path);
    area.setAttribute('d', path && `${path}V${HEIGHT}H0Z`);
    element.setAttribute('aria-label', what);
    element.removeAttribute('aria-hidden');
  };
  return { element, show };
}

export function trace(values: number[]): string {
  const most = Math.max(...values, 1);
  const least = Math.min(...values, 0);
  const y = (value: number): number => 2 + ((most - value) / (most - least)) * (HEIGHT - 4);
  const x = (at: number): number => (at / Math.max(values.length - 1, 1)) * WIDTH;
  return values.map((value, at) => `${at === 0 ? 'M' : 'L'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join('');
}
