// The messages of the page: errors with advice, empty states, loading states, and announcements for
// screen readers.

import { CallError, hasKey } from "./connect.js";
import { button, data, h, tr } from "./dom.js";
import { hasText, translate } from "./translation.js";

const announcer = h("div", { class: "unseen", role: "status", "aria-live": "polite" });

export function announcements() {
  return announcer;
}

/** Announces the dictionary's text for `key` to screen readers. */
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

/** Returns a notice for a part of the page that has no content yet. */
export function emptyState(title, text, ...actions) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "empty-title", t: title }),
    h("p", { t: text }),
    actions.length > 0 && h("div", { class: "actions" }, actions),
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

// For each element, the function whose result may still become the content of the element. Results
// of functions that were started earlier are dropped.
const latest = new WeakMap();

/**
 * Shows `content` in `element`. If a call of `fill` is still running for the element, its result
 * will be dropped.
 */
export function show(element, ...content) {
  latest.delete(element);
  element.replaceChildren(...content);
}

/**
 * Calls `work`, and shows in `element` the nodes that it returns. Until then, shows a loading
 * state; if `work` fails, shows the error with a button that calls `retry`. By default, `retry`
 * repeats this call. Returns false if `work` failed, or if its result was dropped, because `fill`
 * or `show` was called for the same element meanwhile.
 */
export async function fill(element, work, retry = () => fill(element, work)) {
  latest.set(element, work);
  element.replaceChildren(loading());
  try {
    const nodes = await work();
    if (latest.get(element) !== work) return false;
    element.replaceChildren(...[nodes].flat());
    return true;
  } catch (error) {
    if (error.name !== "AbortError" && latest.get(element) === work)
      element.replaceChildren(errorBox(error, retry));
    return false;
  }
}
