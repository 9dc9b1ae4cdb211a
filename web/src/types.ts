// What the API answers, as far as the page reads it.

/** An integer of 64 bits: those that a number cannot hold exactly are bigints (see `api.ts`). */
export type Count = number | bigint;

export const BOXES = ['counted', 'duplicate', 'conflict', 'rejected', 'ignored', 'late'] as const;
export type BoxName = (typeof BOXES)[number];

export type Account = Record<BoxName | 'received', Count> & { holds: boolean };

export interface Balance {
  holds: boolean;
  total: Account;
  counters: (Account & { counter: string; stream: string })[];
}

export interface Rollup {
  by: string[];
  since: string | null;
}

export interface Counter {
  counterName: string;
  mode: string;
  measure: string;
  dimensions: string[];
  rollups: Rollup[];
  timezone: string;
  /** `null` if nobody knows it. */
  total: Count | null;
}

export interface Config {
  version: string;
  counters: Counter[];
}

export interface Envelope {
  id: string;
  value: Count;
  kind: 'exact' | 'provisional' | string;
  pending?: Count;
  generation: number;
  asOf: string;
  exists?: boolean;
}

/** An event of `watch`. */
export interface Told {
  id: string;
  value: Count | null;
  generation: number;
}

export interface Listed {
  counters: { id: string; value?: Count; generation?: number; changedAt?: string | null }[];
  cursor: string | null;
}

/** The keys that came to most: of all, or for one value of a dimension. */
export interface Ranked {
  total: Count | null;
  kind: 'exact' | 'provisional' | 'estimate' | string;
  /** Of an estimate: what any other key came to at most; `null` if nobody knows. */
  bound?: Count | null;
  top: { id: string; value: Count }[];
}

/** Where a window begins, if it does; since when the roll-up knows of anything, if not from the beginning. */
interface Windowed {
  from?: string;
  since?: string;
}

export type Top = Ranked & Windowed;

/** Those of each value of a dimension. */
export type TopBy = Omit<Ranked, 'top'> & Windowed & { groups: (Ranked & { value: string })[] };

export interface Point {
  at: string;
  value: Count;
  parts?: Record<string, Count>;
}

export interface Series {
  from: string;
  to: string;
  timezone: string;
  since: string | null;
  points: Point[];
}

export interface Explanation {
  id: string;
  value: Count;
  shown: Count;
  exists: boolean;
  kind: string;
  pending: Count;
  generation: number;
  floor?: { atZero: boolean; debt: Count };
  base: { value: Count; position: string } | null;
  sinceBase: Count;
  counted: Count;
  corrected: Count;
  correctionsTotal: Count;
  boxes: { key: Partial<Record<BoxName, Count>>; counter: Account } | null;
  sums: { counted: Count; corrected: Count; keys?: Count; values?: Count } | null;
  parked: { bucket: string; delta: Count; entries: Count; due: string }[];
  positions: { logStart: string; checkpoint: string | null; applied: string };
  holds: boolean;
  checks: { what: string; left: Count; right: Count; holds: boolean }[];
  note?: string;
}

export interface Generation {
  generation: number;
  number: number;
  cause: 'proposal' | 'late' | 'clear' | 'revert' | string;
  kind: string;
  reverts?: number;
  reason: string;
  author: string;
  appliedBy: string;
  at: string;
  before: Count;
  delta: Count;
  after: Count;
}

export interface History {
  generations: Generation[];
  next?: number;
}

export interface Workers {
  workers: { name: string }[];
}

export interface Reconciliations {
  /** Counters that keep differing. */
  alerts: string[];
  /** The newest first. */
  reports: Recount[];
}

export interface Recount {
  position: string;
  at: string;
  counters: Recounted[];
  proposal: number | null;
  applied: boolean;
}

export interface Recounted {
  counter: string;
  notCompared: string | null;
  keys: Count;
  differing: Count;
  drift: number;
}

export interface Anomalies {
  rule: { factor: number; least: Count } | null;
  warm: boolean;
  /** The newest first. */
  anomalies: Anomaly[];
}

export interface Anomaly {
  number: number;
  id: string;
  minute: string;
  before: number;
  beforeAtMost: boolean;
  after: Count;
  factor: number;
  share: number;
  expected: string | null;
}
