// Numbers and times as people read them.

import type { Count } from './types';

const whole = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const MINUS = '−';

export const count = (n: Count): string => whole.format(n).replace('-', MINUS);

export const total = (n: Count | null): string => (n === null ? 'not known' : count(n));

/** For axes, where there is little room. */
export const brief = (n: Count): string => short.format(n).replace('-', MINUS);

export const amount = (n: Count, one: string, many: string): string => `${count(n)} ${BigInt(n) === 1n ? one : many}`;

export const size = (n: Count): Count => (n < 0 ? -n : n);

/** What a part is of the whole, from 0 to 1; for bars, which need no more than what a number holds. */
export function share(part: Count, of: Count): number {
  const ratio = Number(part) / Number(of);
  return Number.isFinite(ratio) ? Math.min(Math.max(ratio, 0), 1) : 0;
}

/** Nothing where a part is no share: values go below zero, and then a part may be more than the whole. */
export function percent(part: Count, of: Count): string {
  if (part < 0 || part > of || of <= 0) return '';
  const ratio = share(part, of);
  if (ratio > 0 && ratio < 0.001) return '< 0.1 %';
  if (ratio > 0.999 && ratio < 1) return '> 99.9 %';
  return `${(100 * ratio).toLocaleString('en', { maximumFractionDigits: ratio < 0.1 ? 1 : 0 })} %`;
}

const MINUTE = { day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit' } as const;
const minutes = new Intl.DateTimeFormat('en-GB', MINUTE);
const moments = new Intl.DateTimeFormat('en-GB', { ...MINUTE, second: '2-digit' });

/** A moment in the time of whoever looks; where a minute begins, without seconds, as buckets of time do. */
export function moment(text: string): string {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text;
  return (at.getTime() % 60_000 === 0 ? minutes : moments).format(at);
}

const days = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const times = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });

/** For axes: the time, and at midnight the day. */
export function tick(seconds: number): string {
  const at = new Date(seconds * 1000);
  return at.getHours() === 0 && at.getMinutes() === 0 ? days.format(at) : times.format(at);
}

export function ago(text: string, now = Date.now()): string {
  const seconds = Math.round((now - Date.parse(text)) / 1000);
  if (Number.isNaN(seconds)) return text;
  if (seconds < 5) return 'just now';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 86_400 ? `${Math.floor(seconds / 3600)} h ago` : moment(text);
}

/** A key without the name of its counter, its parts apart and without the `%XX` that they have in ids. */
export function keyOf(id: string, name: string): string {
  if (!id.startsWith(`${name}:`)) return id;
  const parts = id.slice(name.length + 1).split(':').map(plain);
  return parts.map((part) => (part === '' ? '(empty)' : part)).join(' · ');
}

function plain(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** "a", "a and b", "a, b and c". */
export function series(items: string[]): string {
  return items.length < 2 ? items.join('') : `${items.slice(0, -1).join(', ')} and ${items.at(-1)}`;
}
