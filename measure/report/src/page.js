const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const button = document.getElementById("theme");
button.hidden = false;
button.addEventListener("click", () => {
  const shown = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = shown === "dark" ? "light" : "dark";
});
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
