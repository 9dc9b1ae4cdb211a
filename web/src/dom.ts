// The least that is needed to make elements and keep them true. Text is only ever text: nothing is parsed as markup.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | undefined | ((event: never) => void)>;

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

export function svg<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): SVGElementTagNameMap[K] {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function fill<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value as EventListener);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Changes a text only if it is another one, so that a selection in it stays. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** One of several elements that stand for things with a name. */
export interface Row<T> {
  element: Element;
  update(item: T): void;
}

/** Keeps the children of `parent` in step with a list. An element stays the same while its thing does, and keeps the focus. */
export function rows<T>(parent: Element, name: (item: T) => string, make: (item: T) => Row<T>): (items: T[]) => void {
  const known = new Map<string, Row<T>>();
  return (items) => {
    const names = new Set(items.map(name));
    for (const [gone, row] of known) {
      if (names.has(gone)) continue;
      row.element.remove();
      known.delete(gone);
    }
    const focused = document.activeElement;
    items.forEach((item, at) => {
      const row = known.get(name(item)) ?? make(item);
      known.set(name(item), row);
      row.update(item);
      if (parent.children[at] !== row.element) parent.insertBefore(row.element, parent.children[at] ?? null);
    });
    if (focused instanceof HTMLElement && focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
  };
}
