// The one way to the API: exact integers, problems as errors, the token where there is one.

/** What the server says when it does not answer: RFC 9457. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    detail: string,
    /** All that the answer says: `type`, and what else there is by name. */
    readonly members: Readonly<Record<string, unknown>> = {},
  ) {
    super(detail);
  }
}

/** A refusal in the server's words; what is none goes on. */
export function refusal(error: unknown): string {
  if (error instanceof Problem) return error.message;
  throw error;
}

const TOKEN = 'tally-token';
let refused: (hadToken: boolean) => void = () => {};

/** The token lives as long as the tab. */
export const hasToken = (): boolean => sessionStorage.getItem(TOKEN) !== null;
export const setToken = (token: string): void => sessionStorage.setItem(TOKEN, token);

/** What to do when the server wants a token, or another one. */
export function onRefused(act: (hadToken: boolean) => void): void {
  refused = act;
}

export async function get<T>(path: string, signal: AbortSignal): Promise<T> {
  const response = await ask(path, 'application/json', signal);
  return parse<T>(await response.text());
}

/** Asks, and throws a problem unless there is an answer. */
export async function ask(path: string, accept: string, signal: AbortSignal): Promise<Response> {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { accept, ...(token === null ? {} : { authorization: `Bearer ${token}` }) };
  // What the browser has is asked for by its tag, and comes again only if it has changed.
  const response = await fetch(path, { headers, signal, cache: 'no-cache' });
  if (response.ok) return response;
  if (response.status === 401) {
    sessionStorage.removeItem(TOKEN);
    refused(token !== null);
  }
  throw await problem(response);
}

async function problem(response: Response): Promise<Problem> {
  const body: unknown = await response.json().catch(() => null);
  const members = typeof body === 'object' && body !== null ? (body as Record<string, unknown>) : {};
  const { detail } = members;
  return new Problem(response.status, typeof detail === 'string' ? detail : `The server answered ${response.status} ${response.statusText}.`, members);
}

/** JSON whose integers keep all of their digits: counters have 64 bits, numbers of JavaScript have 53. */
export function parse<T>(text: string): T {
  if (!/\d{16}/.test(text)) return JSON.parse(text) as T;
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|(?<![\d.])-?\d{16,}(?![\d.eE])/g, (found) =>
    found.startsWith('"') ? found : `{"$":"${found}"}`,
  );
  return JSON.parse(marked, (_, value: unknown) =>
    typeof value === 'object' && value !== null && '$' in value ? narrow(BigInt(String(value.$))) : value,
  ) as T;
}

function narrow(integer: bigint): number | bigint {
  const number = Number(integer);
  return Number.isSafeInteger(number) ? number : integer;
}

/** The path of a counter, and of what there is about it. */
export function counterPath(id: string, about = ''): string {
  return `v1/counters/${encodeURIComponent(id)}${about && `/${about}`}`;
}

export function query(parameters: Record<string, string | number | undefined>): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== '');
  return given.length === 0 ? '' : `?${given.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join('&')}`;
}
