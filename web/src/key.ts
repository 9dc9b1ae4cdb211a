// `#/key/views:v1`: one counter, its value as it changes, its parts, its series, and where it comes from.

import { counterPath, get } from './api';
import { declared } from './counter';
import { h, say } from './dom';
import { count } from './format';
import { every, type Section } from './live';
import { note } from './pieces';
import { link } from './routes';
import { explainSection, historySection, partsSection, type Answer } from './sections';
import { seriesSection } from './series';
import { follow } from './stream';
import type { Config, Counter, Envelope, Told } from './types';
import { kind } from './words';

export async function keyView(id: string, signal: AbortSignal): Promise<Section> {
  const { counters } = await get<Config>('v1/config', signal);
  const [name] = id.split(':', 1);
  const counter = counters.find(({ counterName }) => counterName === name);
  return counter && id === name && counter.dimensions.length > 0 ? declared(counter) : view(id, counter);
}

function view(id: string, counter: Counter | undefined): Section {
  const value = h('p', { class: 'total large' });
  const said = note();
  const series = counter && seriesSection(id, counter);
  const answers: Answer[] = [...(counter ? [partsSection(id, counter)] : []), explainSection(id), historySection(id)];
  const of = counter
    ? h('p', { class: 'note' }, 'A key of ', h('a', { href: link('counter', counter.counterName) }, counter.counterName))
    : note('A counter that nobody declared: it keeps its value, and no series or parts.');
  const element = h('div', {}, h('h1', { tabindex: -1 }, id), of, value, said, series?.element, ...answers.map(({ element }) => element));

  let isStale = true;
  const draw = async (signal: AbortSignal): Promise<void> => {
    const envelope = await get<Envelope>(counterPath(id), signal);
    say(value, count(envelope.value));
    const corrected = envelope.generation === 0 ? '' : ` · generation ${envelope.generation}`;
    say(said, envelope.exists === false ? 'There is no such counter yet; it reads as 0.' : `${kind(envelope)}${corrected}`);
    await Promise.all(answers.map((answer) => answer.refresh(signal)));
  };
  return {
    element,
    live(signal) {
      isStale = true;
      const hear = (told: Told): void => {
        say(value, count(told.value ?? 0));
        isStale = true;
      };
      void follow<Told>(counterPath(id, 'watch'), signal, hear).catch(() => every(1_000, signal, () => Promise.resolve(void (isStale = true))));
      // The value comes by itself; what it is made of is asked for at most once a second.
      void every(1_000, signal, async () => {
        if (!isStale) return;
        isStale = false;
        await draw(signal);
      }, ({ message }) => say(said, message));
      series?.live(signal);
    },
  };
}
