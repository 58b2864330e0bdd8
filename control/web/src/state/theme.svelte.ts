/** Light, dark, or as the system is; kept in this browser. */

export type Theme = 'auto' | 'light' | 'dark';

const KEY = 'memlane-theme';

class ThemeState {
  current = $state<Theme>(kept());

  choose(theme: Theme): void {
    this.current = theme;
    apply(theme);
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // A browser that keeps nothing shows it for this page alone.
    }
  }
}

function kept(): Theme {
  let text: string | null = null;
  try {
    text = localStorage.getItem(KEY);
  } catch {
    // As the system, then.
  }
  return text === 'light' || text === 'dark' ? text : 'auto';
}

function apply(theme: Theme): void {
  document.documentElement.dataset['theme'] = theme;
}

export const theme = new ThemeState();
apply(theme.current);
