// What is shown is in the address, behind the #: it can be kept, sent and gone back from.

export type Route = { page: 'overview' } | { page: 'counter' | 'key' | 'find'; id: string };

export function parseRoute(hash: string): Route {
  const [, page, rest] = /^#\/(counter|key|find)\/(.+)$/.exec(hash) ?? [];
  if (page === undefined || rest === undefined) return { page: 'overview' };
  return { page: page as 'counter' | 'key' | 'find', id: decode(rest) };
}

export function link(page: 'counter' | 'key' | 'find', id: string): string {
  return `#/${page}/${encodeURIComponent(id).replace(/%3A/g, ':').replace(/%2A/g, '*')}`;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
