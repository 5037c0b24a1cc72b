// What the page says beside its data: errors with advice, empty and loading states, and
// announcements for screen readers.

import { CallError, hasKey } from "./connect.js";
import { button, data, h, tr } from "./dom.js";
import { hasText, translate } from "./translation.js";

const announcer = h("div", { class: "unseen", role: "status", "aria-live": "polite" });

export function announcements() {
  return announcer;
}

/** Says a text to screen readers. */
export function announce(key, values) {
  announcer.textContent = translate(key, values);
}

/** Returns an error with its code, what is wrong, and what to do; `retry` adds a button. */
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

/** Returns what stands where there is nothing yet. */
export function emptyState(title, text, ...actions) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "empty-title", t: title }),
    h("p", { t: text }),
    actions,
  );
}

/** Returns what stands where something is on its way. */
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

const latest = new WeakMap(); // By place: the work that may fill it.

/** Shows `content` in `place`; what other work finds for the place is dropped. */
export function show(place, ...content) {
  latest.delete(place);
  place.replaceChildren(...content);
}

/**
 * Shows in `place` what `work` returns, with a loading state before and an error in its place.
 * Returns false if it failed, or if other work was begun for the place meanwhile. An error offers
 * to `retry`, by default the work alone.
 */
export async function fill(place, work, retry = () => fill(place, work)) {
  latest.set(place, work);
  place.replaceChildren(loading());
  try {
    const found = await work();
    if (latest.get(place) !== work) return false;
    place.replaceChildren(...[found].flat());
    return true;
  } catch (error) {
    if (error.name !== "AbortError" && latest.get(place) === work)
      place.replaceChildren(errorBox(error, retry));
    return false;
  }
}
