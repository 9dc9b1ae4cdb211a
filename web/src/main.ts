// Shows what the address says, and keeps it live while somebody looks at it.

import { Problem, onRefused } from './api';
import { counterView } from './counter';
import { h, say } from './dom';
import { findView } from './find';
import { keyView } from './key';
import { onConnection, pause, type Connection, type Section } from './live';
import { overview } from './overview';
import { note } from './pieces';
import { parseRoute, type Route } from './routes';
import { startSearch } from './search';
import { askForToken, needsToken } from './token';

const element = <E extends Element>(selector: string): E => document.querySelector<E>(selector) ?? fail(selector);
const fail = (selector: string): never => {
  throw new Error(`index.html has no ${selector}`);
};

const main = element<HTMLElement>('#main');
const status = element<HTMLElement>('#status');
const WORDS: Record<Connection, string> = { live: 'Live', paused: 'Paused', lost: 'No answer from the server; trying again' };

/** Ends with the view. */
let shown = new AbortController();
/** Ends with the view, or while nobody looks. */
let looked = new AbortController();
let section: Section | undefined;

function view(route: Route, signal: AbortSignal): Section | Promise<Section> {
  switch (route.page) {
    case 'overview':
      return overview();
    case 'counter':
      return counterView(route.id, signal);
    case 'key':
      return keyView(route.id, signal);
    case 'find':
      return findView(route.id, signal);
  }
}

async function show(isFirst: boolean): Promise<void> {
  if (needsToken()) return askForToken(() => void show(isFirst));
  shown.abort();
  looked.abort();
  shown = new AbortController();
  const { signal } = shown;
  const route = parseRoute(location.hash);
  document.title = route.page === 'overview' ? 'Tally' : `${route.id} – Tally`;
  section = undefined;
  const found = await prepared(route, signal);
  if (signal.aborted || !found) return;
  section = found;
  main.replaceChildren(found.element);
  // Whoever follows a link hears where it led; whoever opens the page begins at its top.
  if (!isFirst) main.querySelector('h1')?.focus({ preventScroll: true });
  if (!isFirst) scrollTo(0, 0);
  look();
}

/** The view, as soon as the server says what it needs for it. */
async function prepared(route: Route, signal: AbortSignal): Promise<Section | undefined> {
  while (!signal.aborted) {
    try {
      return await view(route, signal);
    } catch (error) {
      if (signal.aborted) return undefined;
      if (error instanceof Problem) return { element: h('div', {}, h('h1', { tabindex: -1 }, 'Tally'), note(error.message)), live: () => {} };
      tell('lost');
      await pause(1_000, signal);
    }
  }
  return undefined;
}

function look(): void {
  looked.abort();
  looked = new AbortController();
  if (document.visibilityState === 'hidden') return tell('paused');
  section?.live(looked.signal);
}

function tell(state: Connection): void {
  say(status, WORDS[state]);
  status.dataset['state'] = state;
}

onConnection(tell);
onRefused((hadToken) => {
  shown.abort();
  looked.abort();
  askForToken(() => void show(true), hadToken);
});
startSearch(element('.search'), element('#search'), element('#found'));
addEventListener('hashchange', () => void ((location.hash.startsWith('#/') || location.hash === '') && show(false)));
document.addEventListener('visibilitychange', look);
void show(true);
