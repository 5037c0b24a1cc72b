// What the caller's role permits. A control that needs another role is disabled, and a note near it
// says which role is needed. While the role is unknown, for example because the retriever is down,
// everything is enabled. The services refuse what a role does not permit, whatever the page shows.

import { h, newId } from "./dom.js";
import { serverInfo } from "./server_info.js";
import { bindText } from "./translation.js";

// Each role may do what the roles before it may do.
const ROLES = ["read", "write", "admin"];
// For each control and note, the function that adapts it to the role.
const bound = new WeakMap();
let known = "";
let latestRead; // A symbol that identifies the latest call of `readRole`.

/** Returns true if the caller may do what needs `role`, or if the caller's role is unknown. */
export function permits(role) {
  return !known || ROLES.indexOf(known) >= ROLES.indexOf(role);
}

/** Reads the role of the caller from the server, and adapts the page to it. */
export async function readRole() {
  const read = (latestRead = Symbol("role"));
  const { role = "" } = await serverInfo().catch(() => ({}));
  if (read !== latestRead) return; // The key was changed meanwhile.
  known = ROLES.includes(role) ? role : "";
  for (const node of document.querySelectorAll("[data-role-bound]")) bound.get(node)();
}

/** Returns a paragraph with the dictionary's text for `key`, shown only if the role is too low. */
export function roleNote(role, key) {
  const note = h("p", { class: "hint role-note", id: newId("role") });
  return bind(note, () => {
    note.hidden = permits(role);
    bindText(note, "", key, { role: known });
  });
}

/** Disables `control` while the role is too low; `note` says why. Returns the control. */
export function needsRole(role, control, note) {
  control.setAttribute("aria-describedby", note.id);
  return bind(control, () => (control.disabled = !permits(role)));
}

function bind(node, update) {
  node.setAttribute("data-role-bound", "");
  bound.set(node, update);
  update();
  return node;
}
