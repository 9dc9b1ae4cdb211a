import { defineConfig } from 'vitest/config';

// `TALLY=http://127.0.0.1:7070 npx vite` serves the sources and passes on to a running server what they ask.
const tally = process.env['TALLY'] ?? 'http://127.0.0.1:7070';

export default defineConfig({
  // Relative, so that a proxy may put the server under any path.
  base: './',
  server: { proxy: { '/v1': tally, '/docs': tally } },
  // Bounds on a test that fails, not on one that passes.
  test: { testTimeout: 120_000, expect: { poll: { timeout: 15_000 } } },
  build: {
    outDir: 'dist/page',
    target: 'es2022',
    // Nothing inline: the page's policy allows its own files and nothing else.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
});
