// Dark, light, or as the system says. A classic script in the head, so that no page is painted in the wrong theme.
(() => {
  const KEY = "pagemill-theme";
  const ORDER = ["auto", "light", "dark"];
  const LABEL = { auto: "as the system", light: "light", dark: "dark" };

  let theme = "auto";
  try {
    theme = localStorage.getItem(KEY) ?? "auto";
  } catch {
    // Storage may be switched off; the choice then lasts as long as the page.
  }
  if (!ORDER.includes(theme)) theme = "auto";
  document.documentElement.dataset.theme = theme;

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme-button");
    const show = () => {
      document.documentElement.dataset.theme = theme;
      document.getElementById("theme-name").textContent = theme[0].toUpperCase() + theme.slice(1);
      button.setAttribute("aria-label", `Theme: ${LABEL[theme]}`);
    };
    button.addEventListener("click", () => {
      theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // as above
      }
      show();
    });
    show();
  });
})();
