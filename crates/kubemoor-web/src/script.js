// Comfort alone: every page is whole without this.
"use strict";
(() => {
  // How long a page rests after it was brought up to date, and when a stream that was refused is asked for again.
  const REST = 5000;

  const wait = (time) => new Promise((done) => setTimeout(done, time));
  const boxes = () => [...document.querySelectorAll("main form input[type=checkbox]")];
  const isBusy = () =>
    Boolean(document.activeElement?.closest("main form")) || boxes().some((it) => it.checked !== it.defaultChecked);

  // By what an element is known again: a person sees the same.
  function marks(element) {
    const label = element.getAttribute("aria-label") ?? element.getAttribute("aria-labelledby");
    return JSON.stringify([element.getAttribute("href"), label ?? element.textContent.trim()]);
  }

  // Finds the element with the focus again, among new ones.
  function remember(place) {
    const focused = document.activeElement;
    if (!focused || focused === place || !place.contains(focused)) return () => null;
    const { id, tagName } = focused;
    if (id) return () => document.getElementById(id);
    const [all, known, link] = [() => [...place.querySelectorAll(tagName)], marks(focused), focused.getAttribute("href")];
    const twins = () => all().filter((it) => marks(it) === known);
    const order = twins().indexOf(focused);
    const akin = () => all().find((it) => link !== null && it.getAttribute("href") === link);
    return () => twins()[order] ?? twins()[0] ?? akin();
  }

  // Replaces what the page shows by its present state; keeps focus, open parts and the place. Whether that was possible.
  async function refresh() {
    const before = document.querySelector("main[data-live]");
    const answer = await fetch(location.href, { credentials: "same-origin" });
    // Whoever is not let in any more is shown the way in.
    if (answer.status === 401) return location.reload();
    // What failed for the moment takes nothing away; what may not be seen any more goes.
    if (answer.status >= 500) return false;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const after = page.querySelector("main");
    if (!after || isBusy()) return false;
    const folded = [...before.querySelectorAll("details[id]")].map((part) => [part.id, part.open]);
    const moved = [...before.querySelectorAll(".wide")].map((part) => part.scrollLeft);
    const find = remember(before);
    before.replaceChildren(...after.childNodes);
    for (const [id, isOpen] of folded) document.getElementById(id)?.toggleAttribute("open", isOpen);
    before.querySelectorAll(".wide").forEach((part, place) => { part.scrollLeft = moved[place] ?? 0; });
    find()?.focus({ preventScroll: true });
    return true;
  }

  const live = document.querySelector("main[data-live]");
  if (live) {
    let isDue = false;
    let isAtWork = false;
    let stream = null;
    // Whether nobody has told of what changed before the stream that opens next.
    let isLate = false;

    // Brings the page up to date: at once, and then not before it has rested. Not while nobody looks, or while a form is
    // filled in.
    async function change() {
      isDue = true;
      if (isAtWork) return;
      isAtWork = true;
      while (isDue && !document.hidden && !isBusy()) {
        isDue = false;
        const isDone = await refresh().catch(() => false);
        if (isDone === false) isDue = true;
        await wait(REST);
      }
      isAtWork = false;
    }

    function listen() {
      if (stream || document.hidden) return;
      const own = new EventSource(live.dataset.live);
      stream = own;
      own.addEventListener("change", change);
      own.addEventListener("open", () => {
        if (isLate) change();
        isLate = true;
      });
      own.addEventListener("error", () => {
        isLate = true;
        // The browser asks again by itself, but not after a refusal.
        if (own.readyState !== EventSource.CLOSED || stream !== own) return;
        stream = null;
        change();
        wait(REST).then(listen);
      });
    }

    listen();
    // A browser opens few connections to one server: who does not look needs none.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        stream?.close();
        stream = null;
      } else {
        listen();
        change();
      }
    });
    document.addEventListener("focusout", () => setTimeout(() => isDue && change(), 0));
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
