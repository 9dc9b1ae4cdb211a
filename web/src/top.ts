// The largest keys of a counter: of all time or of the last hours, and by the values of a dimension.

import { get, query, refusal } from './api';
import { h, rows, say } from './dom';
import { count, moment } from './format';
import { turns } from './live';
import { block, note, select, topBars } from './pieces';
import type { Answer } from './sections';
import { tops } from './spans';
import type { Counter, Top, TopBy } from './types';
import { certainty, keptSince } from './words';

/** So many keys are shown; fewer for each value, since there are many. */
const KEYS = 20;
const KEYS_BY = 5;

type Group = TopBy['groups'][number];

export function topSection(counter: Counter): Answer & { listen(signal: AbortSignal): void } {
  const name = counter.counterName;
  const offered = tops(counter);
  const [window, by] = [select('Of'), select('split by')];
  by.offer([...offered.keys()].map((by) => [by, by === '' ? 'nothing' : by]));
  by.element.hidden = offered.size === 1;
  const controls = h('div', { class: 'controls' }, window.element, by.element);
  const whole = topBars(name, 'No key has counted in this time.');
  const groups = groupList(name);
  const said = note();

  const turn = turns();
  const refresh = async (signal: AbortSignal): Promise<void> => {
    const isLast = turn();
    const windows = offered.get(by.control.value) ?? [];
    window.offer(windows.map(({ window, words }) => [window, words]));
    controls.hidden = offered.size === 1 && windows.length === 1;
    const asked = { k: by.control.value === '' ? KEYS : KEYS_BY, window: window.control.value, by: by.control.value };
    try {
      const top = await get<Top | TopBy>(`v1/top/${encodeURIComponent(name)}${query(asked)}`, signal);
      if (!isLast()) return;
      whole.element.hidden = 'groups' in top;
      groups.element.hidden = !('groups' in top);
      if ('groups' in top) groups.show(top.groups);
      else whole.show(top);
      say(said, sentences(top));
    } catch (error) {
      if (isLast()) say(said, refusal(error));
    }
  };
  const listen = (signal: AbortSignal): void => {
    const fail = ({ message }: Error): void => {
      if (!signal.aborted) say(said, message);
    };
    for (const { control } of [window, by]) control.addEventListener('change', () => void refresh(signal).catch(fail), { signal });
  };
  return { element: block('Largest keys', controls, whole.element, groups.element, said), refresh, listen };
}

/** From when on, and how certain. Which groups are estimates, each says for itself. */
function sentences(top: Top | TopBy): string {
  const from = top.from === undefined ? '' : `Counted since ${moment(top.from)}. `;
  return `${from}${keptSince(top.since)}${'groups' in top && top.kind === 'estimate' ? '' : certainty(top)}`.trimEnd();
}

function groupList(name: string): { element: HTMLElement; show(groups: Group[]): void } {
  const list = h('div', { class: 'parts' });
  const nothing = note('Nothing has counted in this time.');
  const update = rows<Group>(list, ({ value }) => value, ({ value }) => {
    const total = h('span', { class: 'number' });
    const { element, show } = topBars(name, 'No key is above zero.');
    const said = note();
    return {
      element: h('div', {}, h('h3', { class: 'sum' }, value, total), element, said),
      update: (group) => {
        say(total, count(group.total ?? 0));
        show(group);
        say(said, group.kind === 'estimate' ? certainty(group) : '');
      },
    };
  });
  const show = (groups: Group[]): void => {
    update(groups);
    nothing.hidden = groups.length > 0;
  };
  return { element: h('div', {}, list, nothing), show };
}
