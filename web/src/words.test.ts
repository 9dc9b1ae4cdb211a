import { expect, test } from 'vitest';
import type { Account, Anomaly, Explanation, Generation, Recounted } from './types';
import { certainty, equation, explain, generation, jump, keptSince, kind, mode, noJump, recount, remedy, shape } from './words';

const account: Account = { received: 10, counted: 7, duplicate: 2, conflict: 0, rejected: 1, ignored: 0, late: 0, holds: true };

const explanation: Explanation = {
  id: 'views:v1',
  value: 7,
  shown: 7,
  exists: true,
  kind: 'exact',
  pending: 0,
  generation: 0,
  base: null,
  sinceBase: 7,
  counted: 7,
  corrected: 0,
  correctionsTotal: 0,
  boxes: { key: {}, counter: account },
  sums: null,
  parked: [],
  positions: { logStart: '1-0-0', checkpoint: null, applied: '1-0-9' },
  holds: true,
  checks: [{ what: 'a = b', left: 1, right: 1, holds: true }],
};

const step: Generation = { generation: 2, number: 5, cause: 'proposal', kind: 'adjust', reason: 'bots', author: 'ann', appliedBy: 'bob', at: '2026-11-15T18:00:00Z', before: 10, delta: -3, after: 7 };

test('boxes are told as the sum that they are', () => {
  expect(equation(account)).toBe('10 received = 7 counted + 2 duplicate + 1 rejected');
  expect(equation(account, true)).toBe('10 received = 7 counted + 2 duplicate + 0 conflict + 1 rejected + 0 ignored + 0 late');
  expect(equation({ ...account, received: 11, holds: false })).toContain('11 received ≠ ');
  expect(equation({ ...account, received: 0, counted: 0, duplicate: 0, rejected: 0 })).toBe('0 received = 0 counted');
});

test('a number that nobody has corrected says so', () => {
  expect(explain(explanation)).toEqual([
    'Up to 1-0-9 of the log, views:v1 comes to 7.',
    'All of it was counted; no correction has touched it.',
    'No checkpoint has it yet: all of it comes from the log.',
    'No entry for views:v1 was a repeat, a conflict, rejected or ignored.',
    'What can be known in two ways agrees: 1 check, none failed.',
  ]);
});

test('corrections, repeats, floors, late entries and checkpoints are told', () => {
  const text = explain({
    ...explanation,
    value: -2,
    shown: 0,
    counted: 1,
    corrected: -3,
    correctionsTotal: 1,
    floor: { atZero: true, debt: 2 },
    base: { value: 4, position: '1-0-5' },
    sinceBase: -6,
    boxes: { key: { duplicate: 2, rejected: 1, late: 4 }, counter: account },
    parked: [{ bucket: '2026-11-15T18:00:00Z', delta: 4, entries: 4, due: '2026-11-15T20:10:00Z' }],
  }).join('\n');
  expect(text).toContain('1 were counted, and 1 correction has taken away 3.');
  expect(text).toContain('The true sum is −2; it is shown as 0');
  expect(text).toContain('The last checkpoint has 4; since then it has changed by −6.');
  expect(text).toMatch(/4 late entries from the hour of .* wait; they will change it by \+4 at /);
  expect(text).toContain('Not counted for it: 2 duplicate (had been sent before) and 1 rejected');
});

test('a check that fails names itself', () => {
  const text = explain({ ...explanation, holds: false, checks: [{ what: 'a = b', left: 1, right: 2, holds: false }] });
  expect(text.at(-1)).toBe('This does not hold: a = b (1 and 2). Please report it.');
});

test('what is not there, and what nobody declared, is said', () => {
  expect(explain({ ...explanation, exists: false })[0]).toBe('There is no views:v1 yet: nothing has counted for it. It reads as 0.');
  expect(explain({ ...explanation, boxes: null, note: 'an ad-hoc counter has no boxes' })).toContain('An ad-hoc counter has no boxes.');
});

test('a generation says who did what', () => {
  expect(generation(step)).toBe('ann corrected it, applied by bob: −3, from 10 to 7.');
  expect(generation({ ...step, cause: 'late', delta: 3, before: 4 })).toBe('Late entries counted: +3, from 4 to 7.');
  expect(generation({ ...step, cause: 'clear', author: 'anonymous', delta: -10, after: 0 })).toBe('Somebody cleared it: −10, from 10 to 0.');
  expect(generation({ ...step, cause: 'revert', reverts: 4 })).toBe('ann took back correction 4: −3, from 10 to 7.');
});

test('modes, ids and kinds have words', () => {
  expect(mode('persistent')).toBe('Each event id once, forever');
  expect(mode('something-new')).toBe('something-new');
  expect(shape({ counterName: 'by', dimensions: ['country', 'device'] } as never)).toBe('by:{country}:{device}');
  expect(kind({ kind: 'exact' })).toBe('exact');
  expect(kind({ kind: 'provisional', pending: 1 })).toBe('provisional: 1 late entry waits and will change it');
});

test('how certain a top is, is told where it is not', () => {
  expect(certainty({ kind: 'exact' })).toBe('');
  expect(certainty({ kind: 'provisional' })).toBe('Late entries wait and may change it.');
  expect(certainty({ kind: 'estimate', bound: 1234 })).toBe('An estimate: each number is exact, but a key may be missing; any other key came to 1,234 at most.');
  expect(certainty({ kind: 'estimate', bound: null })).toContain('it is not known what others came to');
  expect(keptSince(null)).toBe('');
  expect(keptSince('2026-11-15T18:00:00Z')).toContain('Kept since 15 Nov 2026');
});

const recounted: Recounted = { counter: 'views', notCompared: null, keys: 312, differing: 0, drift: 0 };

test('a recount is told calmly where nothing differs, and with the share where something does', () => {
  expect(recount(recounted)).toEqual({ text: 'views: 0 differences, 312 keys.', tone: 'calm' });
  expect(recount({ ...recounted, differing: 2, drift: 0.000812 })).toEqual({ text: 'views: 2 of 312 keys differ, by 0.08 %.', tone: 'differs' });
  expect(recount({ ...recounted, differing: 1, drift: 1e-9 }).text).toBe('views: 1 of 312 keys differ, by < 0.01 %.');
  expect(recount({ ...recounted, notCompared: 'it is simple' })).toEqual({ text: 'views is not compared: it is simple.', tone: 'quiet' });
});

test('what would put right a difference is named, or who has', () => {
  const report = { position: '1-0-9', at: '2026-11-15T18:00:00Z', counters: [], proposal: null, applied: false };
  expect(remedy(report)).toBe('');
  expect(remedy({ ...report, proposal: 12 })).toContain('GET /v1/corrections/12/preview');
  expect(remedy({ ...report, proposal: 12, applied: true })).toBe('Put right by proposal 12.');
});

test('a jump says what was before and after, and what is not certain', () => {
  const found: Anomaly = { number: 1, id: 'views:v1', minute: '2026-11-15T18:00:00Z', before: 120.5, beforeAtMost: false, after: 4200, factor: 34.9, share: 1, expected: null };
  expect(jump(found)).toBe('4,200 in a minute, 120.5 before: 34.9 times as much.');
  expect(jump({ ...found, beforeAtMost: true, before: 1, share: 0.2 })).toBe('about 4,200 in a minute, at most 1 before: 34.9 times as much.');
  const rule = { factor: 10, least: 1000 };
  expect(noJump({ rule, warm: true, anomalies: [] })).toBe('No key has come to 10 times what it used to in a minute, from 1,000 on.');
  expect(noJump({ rule, warm: false, anomalies: [] })).toContain('not known yet');
  expect(noJump({ rule: null, warm: false, anomalies: [] })).toContain('anomalies: none');
  expect(noJump({ rule, warm: true, anomalies: [found] })).toBe('');
});
