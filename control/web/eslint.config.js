import svelte from 'eslint-plugin-svelte';
import ts from 'typescript-eslint';

export default ts.config(
  { ignores: ['dist/', 'node_modules/', 'src/api/*.d.ts'] },
  ...ts.configs.strict,
  ...svelte.configs.recommended,
  {
    rules: {
      'max-lines': ['error', 600],
      'max-lines-per-function': ['error', 70],
      'no-restricted-globals': ['error', 'alert', 'confirm', 'prompt', 'event'],
      'max-len': ['error', { code: 100, ignoreStrings: true, ignoreTemplateLiterals: true }],
      eqeqeq: 'error',
    },
  },
  {
    files: ['**/*.svelte', '**/*.svelte.ts'],
    languageOptions: { parserOptions: { parser: ts.parser } },
  },
  {
    // All texts are in one file, for those who translate them.
    files: ['src/texts.ts'],
    rules: { 'max-lines': 'off' },
  },
  {
    // A suite is one function that holds its tests.
    files: ['**/*.test.ts'],
    rules: { 'max-lines-per-function': 'off' },
  },
);
