import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

/** For `npm run dev`: a console of one's own, as `MEMLANE_CONSOLE=https://localhost:8443`. */
const target = process.env['MEMLANE_CONSOLE'];
const proxied = { target, secure: false, changeOrigin: true };

export default defineConfig({
  plugins: [svelte()],
  build: {
    target: 'es2022',
    // Everything comes from files of the console: its policy forbids what stands in the page.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // The largest is the terminal, which comes with the first console that is opened.
    chunkSizeWarningLimit: 350,
  },
  server: target ? { proxy: { '/v1': proxied, '/console': proxied } } : {},
  test: { include: ['src/**/*.test.ts'] },
});
