// What numbers mean, in sentences. Pure: data in, text out.

import { amount, count, moment, series, size } from './format';
import {
  BOXES,
  type Account,
  type Anomalies,
  type Anomaly,
  type BoxName,
  type Count,
  type Counter,
  type Explanation,
  type Generation,
  type Ranked,
  type Recount,
  type Recounted,
} from './types';

const MODES: Record<string, string> = {
  simple: 'Adds up what it is told',
  display: 'Each event of a session once per window',
  transition: 'One state per entity: twice on is on',
  persistent: 'Each event id once, forever',
};

export const mode = (name: string): string => MODES[name] ?? name;

/** How ids of a counter look, such as `views:{video}`. */
export const shape = (counter: Counter): string => [counter.counterName, ...counter.dimensions.map((dimension) => `{${dimension}}`)].join(':');

export const BOX_WORDS: Record<BoxName, string> = {
  counted: 'changed the number',
  duplicate: 'had been sent before',
  conflict: 'came under an id that stood for something else',
  rejected: 'could not be counted, and were answered with the reason',
  ignored: 'changed nothing, as the rules say',
  late: 'came late and wait for their run',
};

/** `5 received = 3 counted + 2 duplicate`: empty boxes are left out unless all are asked for. */
export function equation(account: Account, all = false): string {
  const boxes = BOXES.filter((box) => all || isSome(account[box]));
  const sum = boxes.map((box) => `${count(account[box])} ${box}`).join(' + ');
  return `${count(account.received)} received ${account.holds ? '=' : '≠'} ${sum || '0 counted'}`;
}

export function kind(value: { kind: string; pending?: Count }): string {
  if (value.kind !== 'provisional') return value.kind;
  return `provisional: ${amount(value.pending ?? 0, 'late entry waits', 'late entries wait')} and will change it`;
}

/** A roll-up that was added to a running counter knows nothing from before. */
export const keptSince = (since: string | null | undefined): string => (since ? `Kept since ${moment(since)}. ` : '');

/** How certain it is that no key is missing among the largest. */
export function certainty({ kind, bound }: Pick<Ranked, 'kind' | 'bound'>): string {
  if (kind === 'provisional') return 'Late entries wait and may change it.';
  if (kind !== 'estimate') return '';
  const others = bound === null || bound === undefined ? 'it is not known what others came to' : `any other key came to ${count(bound)} at most`;
  return `An estimate: each number is exact, but a key may be missing; ${others}.`;
}

/** Where a number comes from. */
export function explain(found: Explanation): string[] {
  return [...origin(found), ...waiting(found), ...others(found), ...agreement(found)];
}

function origin(found: Explanation): string[] {
  if (!found.exists) return [`There is no ${found.id} yet: nothing has counted for it. It reads as 0.`];
  const said = [`Up to ${found.positions.applied} of the log, ${found.id} comes to ${count(found.shown)}.`];
  if (isSome(found.correctionsTotal)) {
    const changed = `${amount(found.correctionsTotal, 'correction has', 'corrections have')} ${change(found.corrected)}`;
    said.push(`${count(found.counted)} were counted, and ${changed}.`);
  } else {
    said.push('All of it was counted; no correction has touched it.');
  }
  if (found.floor && isSome(found.floor.debt)) {
    said.push(`The true sum is ${count(found.value)}; it is shown as 0, because the counter is declared with floorAtZero.`);
  }
  if (found.base) {
    said.push(`The last checkpoint has ${count(found.base.value)}; since then it has ${moved(found.sinceBase)}.`);
  } else {
    said.push('No checkpoint has it yet: all of it comes from the log.');
  }
  return said;
}

function waiting(found: Explanation): string[] {
  return found.parked.map(({ bucket, delta, entries, due }) => {
    const [wait, they] = BigInt(entries) === 1n ? ['waits', 'it'] : ['wait', 'they'];
    return `${amount(entries, 'late entry', 'late entries')} from the hour of ${moment(bucket)} ${wait}; ${they} will change it by ${signed(delta)} at ${moment(due)}.`;
  });
}

function others(found: Explanation): string[] {
  if (!found.boxes) return found.note ? [sentence(found.note)] : [];
  const key = found.boxes.key;
  const elsewhere = BOXES.filter((box) => box !== 'counted' && box !== 'late' && isSome(key[box] ?? 0));
  if (elsewhere.length === 0) return [`No entry for ${found.id} was a repeat, a conflict, rejected or ignored.`];
  return [`Not counted for it: ${series(elsewhere.map((box) => `${count(key[box] ?? 0)} ${box} (${BOX_WORDS[box]})`))}.`];
}

function agreement(found: Explanation): string[] {
  const wrong = found.checks.filter((check) => !check.holds);
  if (found.holds && wrong.length === 0) return [`What can be known in two ways agrees: ${amount(found.checks.length, 'check', 'checks')}, none failed.`];
  return wrong.map(({ what, left, right }) => `This does not hold: ${what} (${count(left)} and ${count(right)}). Please report it.`);
}

const CAUSES: Record<string, (step: Generation) => string> = {
  late: () => 'Late entries counted',
  clear: (step) => `${by(step.author)} cleared it`,
  revert: (step) => `${by(step.author)} took back correction ${step.reverts ?? ''}`.trimEnd(),
  proposal: (step) => `${by(step.author)} corrected it`,
};

/** What one generation did. */
export function generation(step: Generation): string {
  const what = (CAUSES[step.cause] ?? (() => 'It was corrected'))(step);
  const change = `${signed(step.delta)}, from ${count(step.before)} to ${count(step.after)}`;
  const applied = step.cause === 'proposal' && step.appliedBy !== step.author ? `, applied by ${step.appliedBy}` : '';
  return `${what}${applied}: ${change}.`;
}

/** What a recount found about a counter, and in which tone to say so. */
export function recount({ counter, notCompared, keys, differing, drift }: Recounted): { text: string; tone: 'calm' | 'quiet' | 'differs' } {
  if (notCompared !== null) return { text: `${counter} is not compared: ${notCompared}.`, tone: 'quiet' };
  if (!isSome(differing)) return { text: `${counter}: 0 differences, ${amount(keys, 'key', 'keys')}.`, tone: 'calm' };
  return { text: `${counter}: ${count(differing)} of ${amount(keys, 'key differs', 'keys differ')}, by ${share(drift)}.`, tone: 'differs' };
}

/** What can be done about what a recount found. */
export function remedy({ proposal, applied }: Recount): string {
  if (proposal === null) return '';
  if (applied) return `Put right by proposal ${proposal}.`;
  return `Correction ${proposal} is proposed and changes nothing until somebody applies it. Look at it: GET /v1/corrections/${proposal}/preview`;
}

/** By how much a rate jumped. */
export function jump({ before, beforeAtMost, after, factor, share }: Anomaly): string {
  const about = share < 1 ? 'about ' : '';
  return `${about}${count(after)} in a minute, ${beforeAtMost ? 'at most ' : ''}${number(before)} before: ${number(factor)} times as much.`;
}

/** What there is to say where nothing, or nothing more, has jumped. */
export function noJump({ rule, warm, anomalies }: Anomalies): string {
  if (rule === null) return 'Nobody looks for them: the configuration says anomalies: none.';
  if (anomalies.length > 0) return '';
  const since = warm ? '' : ' It is not known yet what is usual: that takes some minutes after a start.';
  return `No key has come to ${number(rule.factor)} times what it used to in a minute, from ${count(rule.least)} on.${since}`;
}

export function signed(n: Count): string {
  return n > 0 ? `+${count(n)}` : count(n);
}

const tenths = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const number = (n: number): string => tenths.format(n);
/** Small shares are what it is about. */
const share = (ratio: number): string => (ratio < 0.000_05 ? '< 0.01 %' : `${(100 * ratio).toLocaleString('en', { maximumFractionDigits: 2 })} %`);
const isSome = (n: Count): boolean => n != 0;
const by = (author: string): string => (author === 'anonymous' ? 'Somebody' : author);
const change = (n: Count): string => (n < 0 ? `taken away ${count(size(n))}` : `added ${count(n)}`);
const moved = (n: Count): string => (isSome(n) ? `changed by ${signed(n)}` : 'not changed');
const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.?$/, '.')}`;
