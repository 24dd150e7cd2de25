import { useEffect, useState } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "everthink.theme";

function stored(): Theme {
  const value = document.documentElement.dataset.theme;
  return value === "light" || value === "dark" ? value : "system";
}

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(stored);
  useEffect(() => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    try {
      if (theme === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, theme);
    } catch {
      // Not remembered, still applied.
    }
  }, [theme]);
  return [theme, () => setTheme((now) => (now === "system" ? "light" : now === "light" ? "dark" : "system"))];
}
