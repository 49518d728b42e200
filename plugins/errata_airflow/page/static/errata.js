// The theme of the Airflow around the page, and links that leave its frame. Without this script the page follows the
// system's theme, and shows all that it has.
(() => {
  const root = document.documentElement;

  const follow = () => {
    let chosen = null;
    try { chosen = localStorage.getItem("theme"); } catch { /* storage may be closed to frames */ }
    if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen; else delete root.dataset.theme;
  };
  follow();
  addEventListener("storage", follow);

  // The frame may not open windows or move the page around it, but Airflow's own document may.
  const leave = (event) => {
    const link = event.target.closest("a[data-airflow]");
    if (!link || window.parent === window || event.metaKey || event.ctrlKey) return;
    try {
      const outside = window.parent.document;
      const copy = outside.createElement("a");
      copy.href = link.href;
      outside.body.append(copy);
      copy.click();
      copy.remove();
      event.preventDefault();
    } catch { /* another origin around us: the link stays a link */ }
  };
  addEventListener("click", leave);
})();
