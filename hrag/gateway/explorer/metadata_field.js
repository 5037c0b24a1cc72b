// A field for the metadata of a document, which is a JSON object.

import { CallError } from "./connect.js";
import { field, h } from "./dom.js";
import { translate } from "./translation.js";

export class MetadataField {
  #text = h("textarea", {
    class: "mono",
    rows: "6",
    spellcheck: "false",
    placeholder: '{"team": "platform", "year": 2026}',
  });

  constructor(metadata = {}) {
    const sorted = Object.fromEntries(Object.entries(metadata).sort());
    this.#text.value = Object.keys(sorted).length ? JSON.stringify(sorted, null, 2) : "";
    const hint = h("p", { class: "hint", t: "metadata.hint" });
    this.element = field("metadata.title", this.#text, hint);
  }

  /** The object in the field; an empty field is an empty object. Raises CallError for other texts. */
  get value() {
    const text = this.#text.value.trim();
    let value;
    try {
      value = text ? JSON.parse(text) : {};
    } catch (error) {
      throw malformed(error.message);
    }
    if (value === null || typeof value !== "object" || Array.isArray(value))
      throw malformed(translate("metadata.no_object"));
    return value;
  }
}

function malformed(reason) {
  const message = translate("metadata.malformed", { reason });
  return new CallError({ code: "invalid_argument", message });
}
