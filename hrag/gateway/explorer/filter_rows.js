// The controls of a filter. Each condition is a row of key, operator and value.

import { button, h } from "./dom.js";
import { filterMessage, valueKind } from "./filter_message.js";

const OPERATORS = ["is", "is_not", "at_least", "above", "at_most", "below", "present", "absent"];
const KEYS = ["document_id", "title", "source", "mime_type", "format"];

export class FilterRows {
  #rows = h("div", { class: "filter-rows" });
  #join = h(
    "select",
    { tLabel: "filter.join" },
    ["all", "any"].map((join) => h("option", { value: join, t: `filter.${join}` })),
  );

  constructor() {
    const add = button("filter.add", () => this.#add().querySelector("input").focus(), {
      class: "quiet-button",
    });
    this.element = h(
      "div",
      { class: "filters" },
      this.#rows,
      h("div", { class: "filter-foot" }, add, this.#join),
    );
    this.#count();
  }

  /**
   * The conditions, as `{ join, rows }`. Each row is `[key, operator, value]`. `join` is `all` if
   * all conditions must be true, or `any` if one is enough.
   */
  get value() {
    const rows = [...this.#rows.children].map((row) =>
      [...row.querySelectorAll("input, select")].map((control) => control.value),
    );
    return { join: this.#join.value, rows };
  }

  set value({ join, rows }) {
    this.#join.value = join === "any" ? "any" : "all";
    this.#rows.replaceChildren();
    for (const row of rows) this.#add(...row);
    this.#count();
  }

  /** The Filter message for the conditions; undefined if there are none. */
  get message() {
    return filterMessage(this.value);
  }

  #add(key = "", operator = "is", value = "") {
    const keyInput = h("input", {
      type: "text",
      class: "mono",
      tLabel: "filter.key",
      tPlaceholder: "filter.key",
      spellcheck: "false",
      list: keyList(),
    });
    const choice = h(
      "select",
      { tLabel: "filter.operator" },
      OPERATORS.map((name) => h("option", { value: name, t: `filter.${name}` })),
    );
    const valueInput = h("input", {
      type: "text",
      tLabel: "filter.value",
      tPlaceholder: "filter.value",
      spellcheck: "false",
    });
    const kind = h("span", { class: "filter-kind" });
    const remove = h(
      "button",
      {
        type: "button",
        class: "icon-button",
        tLabel: "filter.remove",
        onclick: () => this.#remove(row),
      },
      "×",
    );
    const row = h(
      "div",
      { class: "filter-row", role: "group", tLabel: "filter.condition" },
      keyInput,
      choice,
      valueInput,
      kind,
      remove,
    );
    const update = () => showKind(keyInput, choice, valueInput, kind);
    row.addEventListener("input", update);
    keyInput.value = key;
    choice.value = OPERATORS.includes(operator) ? operator : "is";
    valueInput.value = value;
    this.#rows.append(row);
    update();
    this.#count();
    return row;
  }

  #remove(row) {
    const next = row.nextElementSibling ?? row.previousElementSibling;
    row.remove();
    this.#count();
    (next?.querySelector("input") ?? this.element.querySelector("button")).focus();
  }

  #count() {
    this.#join.hidden = this.#rows.children.length < 2;
  }
}

function showKind(key, operator, value, kind) {
  const needsValue = !["present", "absent"].includes(operator.value);
  value.hidden = !needsValue;
  kind.replaceChildren(
    needsValue && value.value
      ? h("span", { t: `filter.kind_${valueKind(key.value, operator.value, value.value)}` })
      : "",
  );
}

/** Returns the id of the `datalist` of suggested keys; the first call creates it. */
function keyList() {
  const id = "filter-keys";
  if (!document.getElementById(id)) {
    document.body.append(
      h(
        "datalist",
        { id },
        KEYS.map((value) => h("option", { value })),
      ),
    );
  }
  return id;
}
