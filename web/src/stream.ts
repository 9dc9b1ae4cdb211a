// Server-sent events over `fetch`, since an EventSource cannot send a token.

import { Problem, ask, parse } from './api';
import { pause } from './live';

export interface ServerEvent {
  name: string;
  data: string;
}

/** Makes events of text that comes in pieces. */
export class EventParser {
  private rest = '';

  push(text: string): ServerEvent[] {
    const blocks = (this.rest + text).split(/\r?\n\r?\n/);
    this.rest = blocks.pop() ?? '';
    return blocks.map(event).filter((found) => found.data !== '');
  }
}

function event(block: string): ServerEvent {
  const found: ServerEvent = { name: 'message', data: '' };
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const [, field, value] = /^([^:]*): ?(.*)$/.exec(line) ?? [];
    if (field === 'event') found.name = value ?? '';
    if (field === 'data') data.push(value ?? '');
  }
  return { ...found, data: data.join('\n') };
}

/** The server says something every 15 s; what is silent for longer is gone, whatever the network says. */
const SILENCE_MS = 40_000;
const RETRY_MS = 1_000;
const RETRY_MAX_MS = 15_000;

/** Follows a stream until it is no longer wanted, through losses of it. Throws what the server refuses. */
export async function follow<T>(path: string, signal: AbortSignal, hear: (told: T) => void): Promise<void> {
  for (let wait = RETRY_MS; !signal.aborted; wait = Math.min(2 * wait, RETRY_MAX_MS)) {
    try {
      await listen(path, signal, (told: T) => {
        wait = RETRY_MS;
        hear(told);
      });
    } catch (error) {
      if (error instanceof Problem && error.status < 500) throw error;
    }
    await pause(wait, signal);
  }
}

async function listen<T>(path: string, signal: AbortSignal, hear: (told: T) => void): Promise<void> {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await ask(path, 'text/event-stream', AbortSignal.any([signal, silence.signal]));
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser();
    for (;;) {
      const piece = await reader?.read();
      if (!piece || piece.done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      for (const { name, data } of parser.push(piece.value)) if (name === 'value') hear(parse<T>(data));
    }
  } finally {
    clearTimeout(timer);
  }
}
