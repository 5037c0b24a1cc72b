// Dialogs that ask before an action. The action runs while the dialog is open: if it fails, for
// example because the role of the key does not permit it, the dialog shows the error and stays.

import { button, data, field, h, newId, tr } from "./dom.js";
import { errorBox } from "./notices.js";

const NAMES_SHOWN = 10;

/**
 * Opens a dialog. `title` and `action` are keys of the dictionary, or arrays of a key and values,
 * for the title and for the button that calls `run`. `content` are the nodes between them. If
 * `typed` is given, the user must type this text before the action can run. `isDestructive` makes
 * the button red, and the focus begins at the button that cancels.
 */
export function openDialog({ title, content = [], action, run, typed = "", isDestructive = false }) {
  const heading = newId("dialog");
  const failure = h("div", { class: "dialog-failure" });
  const confirmation = h("input", {
    type: "text",
    class: "mono",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => (submit.disabled = confirmation.value !== typed),
  });
  const submit = h("button", {
    type: "submit",
    class: isDestructive ? "bad-button" : "main-button",
    t: action,
    disabled: Boolean(typed),
  });
  const cancel = button("action.cancel", () => dialog.close(), { class: "quiet-button" });
  const form = h(
    "form",
    { class: "dialog-body", method: "dialog", onsubmit: (event) => work(event) },
    h("h2", { id: heading, t: title }),
    content,
    typed && [
      h("p", {}, tr("dialog.type"), " ", h("code", {}, data(typed))),
      field("dialog.name", confirmation),
    ],
    failure,
    h("div", { class: "actions" }, submit, cancel),
  );
  const dialog = h(
    "dialog",
    { class: "action-dialog", "aria-labelledby": heading, onclose: () => close() },
    form,
  );
  const opener = document.activeElement;

  async function work(event) {
    event.preventDefault();
    submit.disabled = true;
    failure.replaceChildren();
    try {
      await run();
      dialog.close();
    } catch (error) {
      failure.replaceChildren(errorBox(error));
      submit.disabled = false;
    }
  }

  function close() {
    dialog.remove();
    // What opened the dialog may have been deleted.
    const next = opener?.checkVisibility() ? opener : document.querySelector("[aria-selected=true]");
    next.focus();
  }

  document.body.append(dialog);
  dialog.showModal();
  if (typed) confirmation.focus();
  else if (isDestructive) cancel.focus();
}

/** Returns a list of names; of many names, the first ones and how many follow. */
export function nameList(names) {
  const more = names.length - NAMES_SHOWN;
  return h(
    "ul",
    { class: "name-list" },
    names.slice(0, NAMES_SHOWN).map((name) => h("li", {}, data(name))),
    more > 0 && h("li", { class: "meta", t: ["dialog.more", { n: more }] }),
  );
}
