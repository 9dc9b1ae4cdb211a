// Finding a counter by the beginning of its id, or by a pattern.

import { get, query } from './api';
import { h } from './dom';
import { link } from './routes';
import type { Config, Listed } from './types';

const WAIT_MS = 150;
const SUGGESTED = 8;

/** Offers ids that begin with `prefix` and what is typed. */
export function suggest(input: HTMLInputElement, list: HTMLElement, prefix = ''): void {
  let asked = new AbortController();
  let timer = 0;
  const offer = async (signal: AbortSignal): Promise<void> => {
    const { counters } = await get<Listed>(`v1/counters${query({ match: `${prefix}${input.value}*`, limit: SUGGESTED, fields: 'id' })}`, signal);
    list.replaceChildren(...counters.map(({ id }) => h('option', { value: id.slice(prefix.length) })));
  };
  input.addEventListener('input', () => {
    asked.abort();
    asked = new AbortController();
    clearTimeout(timer);
    // Without suggestions one can still type.
    timer = window.setTimeout(() => void offer(asked.signal).catch(() => {}), WAIT_MS);
  });
}

/** Where to go for what somebody typed. */
export function destination(text: string, declared: string[]): string {
  if (text.includes('*')) return link('find', text);
  return link(declared.includes(text) ? 'counter' : 'key', text);
}

export function startSearch(form: HTMLFormElement, input: HTMLInputElement, list: HTMLElement): void {
  suggest(input, list);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (text === '') return;
    const config = get<Config>('v1/config', new AbortController().signal).catch(() => ({ counters: [] as Config['counters'] }));
    void config.then(({ counters }) => {
      location.hash = destination(text, counters.map(({ counterName }) => counterName));
      input.value = '';
    });
  });
}
