// Whether the numbers can be believed: what the last recount found, and which rates have jumped.

import { get, refusal } from './api';
import { h, rows, say } from './dom';
import { ago, moment } from './format';
import { block, note } from './pieces';
import { link } from './routes';
import type { Anomalies, Anomaly, Reconciliations, Recounted, Workers } from './types';
import { jump, noJump, recount, remedy } from './words';

interface Part {
  element: HTMLElement;
  refresh(signal: AbortSignal): Promise<void>;
}

/** How many of the last jumps are shown. */
const SHOWN = 8;

export const truth = (): Part[] => [recounts(), jumps()];

/** Each declared counter against what the archive says. */
function recounts(): Part {
  const list = h('ul', { class: 'sentences verdicts' });
  const said = note('Asking …');
  const proposed = note();
  const update = rows<Verdict>(list, ({ counter }) => counter.counter, () => {
    const words = h('span');
    const flag = h('strong', { hidden: true }, 'Alert: it keeps differing. ');
    const element = h('li', {}, flag, words);
    return {
      element,
      update: ({ counter, alert }) => {
        const { text, tone } = recount(counter);
        flag.hidden = !alert;
        element.dataset['tone'] = alert ? 'alert' : tone;
        say(words, text);
      },
    };
  });
  /** Without an archive nobody counts again, and to ask for it would only be refused. */
  let isThere: boolean | undefined;
  const refresh = async (signal: AbortSignal): Promise<void> => {
    isThere ??= (await get<Workers>('v1/workers', signal)).workers.some(({ name }) => name === 'reconcile');
    if (!isThere) return say(said, 'Counters are counted again from the archive, and this server keeps none.');
    try {
      const { reports, alerts } = await get<Reconciliations>('v1/reconciliation?limit=1', signal);
      const [last] = reports;
      update((last?.counters ?? []).map((counter) => ({ counter, alert: alerts.includes(counter.counter) })));
      say(said, last ? `Counted again ${ago(last.at)}, at ${last.position} of the log.` : 'Nothing was counted again yet: it is each hour, or now with tally reconcile.');
      say(proposed, last ? remedy(last) : '');
    } catch (error) {
      say(said, refusal(error));
    }
  };
  return { element: block('As counted again', said, list, proposed), refresh };
}

interface Verdict {
  counter: Recounted;
  alert: boolean;
}

/** Keys that came to far more in a minute than they used to. */
function jumps(): Part {
  const list = h('ol', { class: 'history' });
  const said = note('Asking …');
  const update = rows<Anomaly>(list, ({ number }) => String(number), (anomaly) => ({
    element: h(
      'li',
      {},
      h('p', {}, h('a', { href: link('key', anomaly.id) }, anomaly.id), `: ${jump(anomaly)}`),
      h('p', { class: 'note' }, `In the minute of ${moment(anomaly.minute)}.${anomaly.expected === null ? '' : ` Expected: ${anomaly.expected}`}`),
    ),
    update: () => {},
  }));
  return {
    element: block('Rates that jumped', said, list),
    async refresh(signal) {
      try {
        const found = await get<Anomalies>(`v1/anomalies?limit=${SHOWN}`, signal);
        update(found.anomalies);
        say(said, noJump(found));
      } catch (error) {
        say(said, refusal(error));
      }
    },
  };
}
