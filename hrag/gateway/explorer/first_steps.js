// Says what to do next as long as there is nothing to search in.

import { button } from "./dom.js";
import { whole } from "./format.js";
import { emptyState } from "./notices.js";
import { needsRole, roleNote } from "./roles.js";

/**
 * Returns a notice if the session has no tenant, or if the chosen collection has no documents; else
 * null. `go` is called with the name of the view that the user chooses.
 */
export function firstSteps({ tenant, isNew, chosen }, go) {
  if (!tenant) return emptyState("documents.no_tenant_title", "documents.no_tenant_text");
  const isEmpty = isNew || (chosen && whole(chosen.documentCount) === 0);
  if (!isEmpty) return null;
  const note = roleNote("write", "role.upload");
  const upload = button("nav.upload", () => go("upload"), { class: "main-button" });
  const steps = emptyState(
    "first.title",
    "first.text",
    needsRole("write", upload, note),
    button("nav.collections", () => go("collections")),
  );
  steps.append(note);
  return steps;
}
