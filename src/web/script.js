// Comfort alone: every page is whole without this.
"use strict";
(() => {
  // Replaces what the page shows by its present state; keeps focus, open parts and the place.
  let missed = false;
  async function refresh() {
    const before = document.querySelector("main[data-live]");
    if (!before) return;
    const busy = document.activeElement && document.activeElement.closest("main form");
    missed = Boolean(busy || document.hidden);
    if (missed) return;
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const after = page.querySelector("main[data-live]");
    if (!after) return;
    const open = [...before.querySelectorAll("details[id][open]")].map((part) => part.id);
    const focused = document.activeElement && document.activeElement.id;
    before.replaceChildren(...after.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  if (document.querySelector("main[data-live]")) {
    const change = () => refresh().catch(() => {});
    new EventSource("stream").addEventListener("change", change);
    // What changed while nobody looked, or while a form was filled in.
    const resume = () => missed && change();
    document.addEventListener("visibilitychange", resume);
    document.addEventListener("focusout", () => setTimeout(resume, 0));
  }

  // A file is read into the field of its form.
  document.querySelectorAll("input[data-into]").forEach((input) => {
    input.closest(".script").classList.remove("script");
    input.addEventListener("change", async () => {
      const field = input.form.elements[input.dataset.into];
      if (input.files.length > 0) field.value = await input.files[0].text();
    });
  });

  // "/" goes to the search, as elsewhere.
  document.addEventListener("keydown", (event) => {
    const field = document.querySelector("input[type=search]");
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "/" && field && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      field.focus();
    }
  });
})();
