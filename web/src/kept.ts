// Old buckets are rolled into coarser ones. What is kept of them is the server's to know: it is asked for the finest steps, and what it refuses
// says what to ask instead.

import { counterPath, get, query, Problem } from './api';
import { moment } from './format';
import { STEPS, ranges, steps, stretch, type Span } from './spans';
import type { Counter, Series } from './types';

/** A refusal: before some time there is nothing, or nothing as fine as this. */
export interface NotKept {
  keptBefore: string;
  /** From when on the question can be answered as it is. */
  from: string;
  /** The step with which all of it can be; none if there is nothing. */
  step?: string;
}

export function notKept(error: unknown): NotKept | undefined {
  if (!(error instanceof Problem) || error.members['type'] !== '/problems/not-kept') return undefined;
  return error.members as unknown as NotKept;
}

/** What to show where a span is not kept: the same stretch in the steps that are, or the shortest one that has such steps; if there are none, what there is. */
export function instead(counter: Counter, by: string[], span: Span, refused: NotKept): Span {
  const step = STEPS.find((known) => known.step === refused.step);
  const range = step && [span.range, ...ranges(counter, by)].find((range) => steps(counter, by, range).includes(step));
  return step && range ? { range, step } : { ...span, from: refused.from };
}

/** What was found, and the span that it is of. */
export interface Found {
  series: Series;
  span: Span;
  /** Why that is not the span that was asked for. */
  refused?: NotKept;
}

/** When: "in the last hour". */
export const during = ({ range, from }: Span): string => (from === undefined ? `in ${range.words}` : `since ${moment(from)}`);

/** Why something else is shown than was asked for. */
export function reason(asked: Span, { span, refused }: Found): string {
  if (!refused) return '';
  if (span.from !== undefined) return `Before ${moment(span.from)} nothing is kept.`;
  return `A point for ${asked.step.words} is kept only from ${moment(refused.from)} on. Shown is a point for ${span.step.words}.`;
}

/** Parts that are lines of their own. */
const LINES = 6;
/** Each refusal names a coarser step or a later time. */
const TRIES = STEPS.length + 1;

/** A series over a span, or over what is kept instead of it. */
export async function askSeries(id: string, counter: Counter, by: string[], asked: Span, signal: AbortSignal): Promise<Found> {
  const split = by.length > 0 ? { by: by.join(), top: LINES } : {};
  let [span, refused]: [Span, NotKept | undefined] = [asked, undefined];
  for (let tries = 1; ; tries += 1) {
    try {
      const series = await get<Series>(counterPath(id, 'series') + query({ ...stretch(span), ...split, fill: 'zero' }), signal);
      return { series, span, ...(refused && { refused }) };
    } catch (error) {
      const found = notKept(error);
      if (!found || tries === TRIES) throw error;
      [span, refused] = [instead(counter, by, span, found), refused ?? found];
    }
  }
}

/** Parts that are bars of their own. */
const BARS = 10;

/** Asks for all of the time at once, by dimensions; where the beginning is not kept any more, for what is. */
export function wholeOf(id: string, by: string[]): (signal: AbortSignal) => Promise<{ series: Series; from?: string }> {
  let from: string | undefined;
  const ask = (signal: AbortSignal): Promise<Series> => get<Series>(counterPath(id, 'series') + query({ by: by.join(), top: BARS, from }), signal);
  return async (signal) => {
    const series = await ask(signal).catch((error: unknown) => {
      // What was refused once is not asked for again.
      from = notKept(error)?.from;
      if (from === undefined) throw error;
      return ask(signal);
    });
    return { series, ...(from !== undefined && { from }) };
  };
}
