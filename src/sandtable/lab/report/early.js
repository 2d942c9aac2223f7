try {
  const theme = localStorage.getItem("sandtable-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* a browser may keep storage closed to files */ }
