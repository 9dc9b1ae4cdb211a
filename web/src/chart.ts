// A chart with axes. uPlot is loaded when the first one is drawn: the first numbers do not wait for it.

import 'uplot/dist/uPlot.min.css';
import type uPlot from 'uplot';
import { h } from './dom';
import { brief, count, moment, tick } from './format';
import type { Series } from './types';

export interface Line {
  label: string;
  values: (number | null)[];
}

const HEIGHT = 220;

/** The lines of a series: one, or one for each of its parts, the largest first. */
export function lines(series: Series, label: string, most = 6): Line[] {
  const sums = new Map<string, number>();
  for (const { parts } of series.points) {
    for (const [part, value] of Object.entries(parts ?? {})) sums.set(part, (sums.get(part) ?? 0) + Number(value));
  }
  if (sums.size === 0) return [{ label, values: series.points.map(({ value }) => Number(value)) }];
  const named = [...sums].sort(([, a], [, b]) => b - a).slice(0, most);
  return named.map(([part]) => ({ label: part.split('|').join(' · '), values: series.points.map(({ parts }) => Number(parts?.[part] ?? 0)) }));
}

export interface Chart {
  element: HTMLElement;
  show(series: Series, lines: Line[]): Promise<void>;
  /** Colours are read when it is drawn: other ones need another drawing. */
  keepColours(signal: AbortSignal): void;
}

export function chart(): Chart {
  const canvas = h('div', { class: 'chart', role: 'img' });
  const body = h('tbody');
  const head = h('tr');
  const table = h('details', { class: 'table' }, h('summary', {}, 'As a table'), h('div', { class: 'scroll', role: 'region', 'aria-label': 'The points of the chart', tabindex: 0 }, h('table', {}, h('thead', {}, head), body)));
  let plot: uPlot | undefined;
  let drawn: [Series, Line[]] | undefined;
  const width = (): number => Math.max(canvas.clientWidth, 200);

  const draw = async (series: Series, shown: Line[]): Promise<void> => {
    drawn = [series, shown];
    const { default: Plot } = await import('uplot');
    const data: uPlot.AlignedData = [series.points.map(({ at }) => Date.parse(at) / 1000), ...shown.map(({ values }) => values)];
    const labels = shown.map(({ label }) => label).join('\n');
    if (plot && canvas.dataset['labels'] === labels) return plot.setData(data);
    plot?.destroy();
    canvas.dataset['labels'] = labels;
    plot = new Plot(options(shown, width()), data, canvas);
  };
  new ResizeObserver(() => plot?.setSize({ width: width(), height: HEIGHT })).observe(canvas);
  const list = (): void => {
    if (!table.open || !drawn) return;
    const [{ points }, shown] = drawn;
    head.replaceChildren(...['From', ...shown.map(({ label }) => label)].map((title) => h('th', { scope: 'col' }, title)));
    const cells = (at: number): HTMLElement[] => shown.map(({ values }) => h('td', {}, count(values[at] ?? 0)));
    body.replaceChildren(...points.map((point, at) => h('tr', {}, h('th', { scope: 'row' }, moment(point.at)), ...cells(at))));
  };
  table.addEventListener('toggle', list);
  const redraw = (): void => {
    delete canvas.dataset['labels'];
    if (drawn) void draw(...drawn);
  };
  const keepColours = (signal: AbortSignal): void => matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw, { signal });

  const show = async (series: Series, shown: Line[]): Promise<void> => {
    canvas.setAttribute('aria-label', summary(series, shown));
    await draw(series, shown);
    list();
  };
  return { element: h('div', {}, canvas, table), show, keepColours };
}

/** What somebody hears who cannot see it. */
export function summary(series: Series, shown: Line[]): string {
  const values = shown.flatMap(({ values }) => values).map(Number);
  const what = shown.map(({ label }) => label).join(', ');
  return `${what}: ${series.points.length} points from ${moment(series.from)} to ${moment(series.to)}, least ${count(Math.min(...values, 0))}, most ${count(Math.max(...values, 0))}`;
}

function options(shown: Line[], width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const axis: uPlot.Axis = { stroke: colour('--muted'), font: '12px system-ui, sans-serif', grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  return {
    width,
    height: HEIGHT,
    padding: [12, 20, 0, 0],
    cursor: { y: false, points: { size: 7 } },
    legend: { show: true, live: true },
    scales: { y: { range: (_, least, most) => [Math.min(least ?? 0, 0), Math.max((most ?? 0) * 1.1, 1)] } },
    axes: [{ ...axis, grid: { show: false }, size: 32, space: 72, values: (_, ticks) => ticks.map(tick) }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? brief(tick) : '')) }],
    series: [
      { value: (_, at) => (at ? moment(new Date(at * 1000).toISOString()) : '–'), label: 'From' },
      ...shown.map(({ label }, at): uPlot.Series => ({
        label,
        stroke: colour(`--line-${at}`),
        width: 2,
        points: { show: false },
        ...(shown.length === 1 ? { fill: colour('--tint') } : {}),
        value: (_, value) => (value === null ? '–' : count(value)),
      })),
    ],
  };
}
