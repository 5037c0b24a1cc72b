// The messages of the page: errors with advice, empty states, loading states, and announcements for
// screen readers.

import { CallError, hasKey } from "./connect.js";
import { button, data, h, tr } from "./dom.js";
import { hasText, translate } from "./translation.js";

const announcer = h("div", { class: "unseen", role: "status", "aria-live": "polite" });

export function announcements() {
  return announcer;
}

/** Announces a text to screen readers. */
export function announce(key, values) {
  announcer.textContent = translate(key, values);
}

/**
 * Returns a box that shows an error: its code, its message and advice. If `retry` is given, a
 * button calls it.
 */
export function errorBox(raised, retry = null) {
  const error =
    raised instanceof CallError
      ? raised
      : new CallError({ code: "unexpected", message: String(raised) });
  const advice = adviceKey(error);
  return h(
    "div",
    { class: "error-box", role: "alert" },
    h("p", { class: "error-title" }, tr("error.title"), h("code", { class: "code" }, error.code)),
    error.message && h("p", { class: "error-message" }, data(error.message)),
    error.field && h("p", {}, tr("error.field"), " ", h("code", {}, error.field)),
    advice && h("p", { class: "advice", t: advice }),
    retry && button("action.retry", retry),
  );
}

function adviceKey({ code, reason }) {
  const keys = [
    `advice.${reason}`,
    code === "unauthenticated" && !hasKey() ? "advice.no_key" : "",
    `advice.${code}`,
  ];
  return keys.find(hasText) ?? null;
}

/** Returns the notice for a place that has no content yet. */
export function emptyState(title, text, ...actions) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "empty-title", t: title }),
    h("p", { t: text }),
    actions,
  );
}

/** Returns the placeholder for content that is loading. */
export function loading() {
  const lines = ["long", "middle", "short"].map((name) =>
    h("span", { class: `bone bone-${name}` }),
  );
  return h(
    "div",
    { class: "loading", "aria-busy": "true" },
    h("span", { class: "unseen", t: "state.loading" }),
    lines,
  );
}

const latest = new WeakMap(); // From a place to the only work that may still fill it.

/** Shows `content` in `place`. Results of work that still runs for the place will be dropped. */
export function show(place, ...content) {
  latest.delete(place);
  place.replaceChildren(...content);
}

/**
 * Shows in `place` the nodes that `work` returns: first a loading state, then the nodes or an
 * error. Returns false if the work failed, or if other work was begun for the place meanwhile. The
 * error has a button that calls `retry`; by default it runs the work again.
 */
export async function fill(place, work, retry = () => fill(place, work)) {
  latest.set(place, work);
  place.replaceChildren(loading());
  try {
    const nodes = await work();
    if (latest.get(place) !== work) return false;
    place.replaceChildren(...[nodes].flat());
    return true;
  } catch (error) {
    if (error.name !== "AbortError" && latest.get(place) === work)
      place.replaceChildren(errorBox(error, retry));
    return false;
  }
}
