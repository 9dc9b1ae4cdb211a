// A server with a token is asked for nothing before somebody has typed it.

import { hasToken, setToken } from './api';
import { h } from './dom';

export function needsToken(): boolean {
  const asked = document.querySelector('meta[name="tally-token"]')?.getAttribute('content') === 'asked';
  return asked && !hasToken();
}

/** Asks until there is one. */
export function askForToken(go: () => void, wasWrong = false): void {
  if (document.querySelector('dialog')) return;
  const input = h('input', { id: 'token', type: 'password', autocomplete: 'current-password', required: true });
  const dialog = h(
    'dialog',
    { 'aria-labelledby': 'token-title' },
    h(
      'form',
      { method: 'dialog' },
      h('h2', { id: 'token-title' }, 'This server asks for a token'),
      wasWrong && h('p', { class: 'wrong', role: 'alert' }, 'The server does not take that token.'),
      h('p', { class: 'note' }, 'It is in the file that --http-token-file names, and is kept until this tab is closed.'),
      h('label', { for: 'token' }, 'Token '),
      input,
      h('button', {}, 'Go on'),
    ),
  );
  dialog.addEventListener('cancel', (event) => event.preventDefault());
  dialog.addEventListener('close', () => {
    dialog.remove();
    setToken(input.value.trim());
    go();
  });
  document.body.append(dialog);
  dialog.showModal();
}
