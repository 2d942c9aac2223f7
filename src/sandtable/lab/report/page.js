(() => {
  const page = document.documentElement;
  const form = document.getElementById("filter");
  const claims = [...document.querySelectorAll("details.claim")];
  const lines = [...document.querySelectorAll("section.line")];
  const errata = [...document.querySelectorAll("[data-erratum]")];
  const squares = new Map([...document.querySelectorAll(".squares a")].map((a) => [a.hash.slice(1), a]));
  const words = new Map();

  const text = (claim) => {
    if (!words.has(claim)) {
      const parts = [claim.firstElementChild, ...claim.querySelectorAll("[data-words]")];
      words.set(claim, parts.map((part) => part.textContent).join(" ").toLowerCase());
    }
    return words.get(claim);
  };
  const chosen = (claim) => {
    const { search, outcome, verdict, scale, line, expected } = form.elements;
    const d = claim.dataset;
    return (!outcome.value || (outcome.value === "stale" ? "stale" in d : d.outcome === outcome.value))
      && (!verdict.value || d.verdict === verdict.value)
      && (!scale.value || d.scales.split(" ").includes(scale.value))
      && (!line.value || d.line === line.value)
      && (!expected.value || d.expected === expected.value)
      && search.value.toLowerCase().split(/\s+/).every((word) => text(claim).includes(word));
  };
  const apply = () => {
    let count = 0;
    for (const claim of claims) {
      claim.hidden = !chosen(claim);
      count += !claim.hidden;
      squares.get(claim.id)?.classList.toggle("dim", claim.hidden);
    }
    for (const line of lines) line.hidden = !line.querySelector("details.claim:not([hidden])");
    for (const erratum of errata) erratum.hidden = document.getElementById(erratum.dataset.erratum).hidden;
    document.getElementById("none").hidden = count > 0 || !claims.length;
    document.getElementById("no-errata").hidden = !errata.length || errata.some((erratum) => !erratum.hidden);
    document.getElementById("shown").textContent =
      count === claims.length ? `${count} claims` : `${count} of ${claims.length} claims`;
    const set = [...form.querySelectorAll("select")].filter((select) => select.value).length;
    document.getElementById("set").textContent = set ? `Filters (${set})` : "Filters";
    form.elements.all.hidden = count === claims.length;
    for (const chip of document.querySelectorAll("[data-outcome-chip]")) {
      chip.setAttribute("aria-pressed", String(chip.dataset.outcomeChip === form.elements.outcome.value));
    }
  };
  const reset = () => { form.reset(); apply(); };

  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.all.addEventListener("click", reset);
  form.elements.open.addEventListener("click", () => {
    const visible = claims.filter((claim) => !claim.hidden);
    const open = visible.some((claim) => !claim.open);
    for (const claim of visible) claim.open = open;
  });
  document.getElementById("set").addEventListener("click", (event) => {
    const open = form.classList.toggle("unfolded");
    event.currentTarget.setAttribute("aria-expanded", String(open));
  });
  for (const chip of document.querySelectorAll("[data-outcome-chip]")) {
    chip.disabled = false;
    chip.addEventListener("click", () => {
      const { outcome } = form.elements;
      outcome.value = outcome.value === chip.dataset.outcomeChip ? "" : chip.dataset.outcomeChip;
      apply();
    });
  }
  addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      form.elements.search.focus();
    } else if (event.key === "Escape" && event.target === form.elements.search) {
      form.elements.search.value = "";
      apply();
    }
  });

  const reveal = () => {
    let id = location.hash.slice(1);
    try { id = decodeURIComponent(id); } catch { /* a stray % is part of the name */ }
    const target = id && document.getElementById(id);
    const claim = target && target.closest("details.claim");
    if (!claim) return;
    if (claim.hidden) reset();
    claim.open = true;
    const fold = target.closest("details.fold");
    if (fold) fold.open = true;
    target.scrollIntoView();
    (target === claim ? claim.firstElementChild : target).focus({ preventScroll: true });
  };
  addEventListener("hashchange", reveal);
  // A link to where one is already changes no hash.
  addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.hash === location.hash) reveal();
  });

  const choices = [...document.querySelectorAll("[data-theme-choice]")];
  const dress = (theme) => {
    if (theme) page.dataset.theme = theme; else delete page.dataset.theme;
    for (const choice of choices) choice.setAttribute("aria-pressed", String(choice.dataset.themeChoice === (theme || "")));
  };
  for (const choice of choices) {
    choice.addEventListener("click", () => {
      dress(choice.dataset.themeChoice);
      try { localStorage.setItem("sandtable-theme", choice.dataset.themeChoice); } catch { /* kept for this page only */ }
    });
  }
  document.getElementById("theme").hidden = false;
  dress(page.dataset.theme);

  const copy = async (code) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return true;
    } catch {
      getSelection().selectAllChildren(code);
      return document.execCommand("copy");
    }
  };
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      button.textContent = (await copy(button.previousElementSibling)) ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
  apply();
  reveal();
})();
