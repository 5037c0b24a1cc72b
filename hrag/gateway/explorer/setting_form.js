// The controls of one search setting. If an option does not apply to the chosen mode or retrieval,
// it is hidden and not sent. If an option is empty, the server uses the default of the option.

import { field, h, newId, tr } from "./dom.js";
import { FilterRows } from "./filter_rows.js";
import { MAIN_OPTIONS, MORE_OPTIONS, applies, requestOptions } from "./search_options.js";

export class SettingForm {
  #controls = new Map();
  #filters = new FilterRows();
  #modeHint = h("p", { class: "hint" });
  #defaults;

  /**
   * `title` is the dictionary's key of the title. `defaultMode` is the mode that is selected before
   * the user chooses one.
   */
  constructor(title, defaultMode = "SMALL_TO_BIG") {
    const main = h(
      "div",
      { class: "option-grid main-options" },
      MAIN_OPTIONS.map((option) => this.#control(option)),
    );
    const more = h(
      "div",
      { class: "option-grid" },
      MORE_OPTIONS.map((option) => this.#control(option)),
    );
    this.element = h(
      "fieldset",
      { class: "setting", oninput: () => this.#update() },
      h("legend", { t: title }),
      main,
      this.#modeHint,
      h("details", { class: "fold" }, h("summary", { t: "setting.more" }), more),
      h(
        "details",
        { class: "fold" },
        h("summary", { t: "setting.filters" }),
        h("p", { class: "hint", t: "filter.hint" }),
        this.#filters.element,
      ),
    );
    this.element.addEventListener("invalid", unfold, { capture: true });
    this.#controls.get("mode").value = defaultMode;
    this.#defaults = this.#options;
    this.#update();
  }

  get mode() {
    return this.#controls.get("mode").value;
  }

  /** The fields of a SearchRequest for this setting. */
  get request() {
    return { ...requestOptions(this.#options), filter: this.#filters.message };
  }

  /**
   * The options that differ from the defaults, and the conditions of the filter; see
   * `search_address.js`. `load` reads this value.
   */
  get saved() {
    const set = Object.entries(this.#options).filter(
      ([name, value]) => value !== this.#defaults[name],
    );
    return { ...Object.fromEntries(set), filters: this.#filters.value };
  }

  /**
   * Sets the options that `saved` contains, and all other options to their defaults. Values that an
   * option does not allow are ignored; the page's address may contain such values.
   */
  load({ filters, ...saved }) {
    const options = { ...this.#defaults, ...saved };
    for (const [name, control] of this.#controls) {
      if (control.type === "checkbox") control.checked = String(options[name]) === "true";
      else control.value = isAllowed(control, options[name]) ? options[name] : this.#defaults[name];
    }
    this.#filters.value = filters;
    this.#update();
    for (const fold of this.element.querySelectorAll("details")) fold.open = holdsValue(fold);
  }

  get #options() {
    return Object.fromEntries(
      [...this.#controls].map(([name, control]) => [
        name,
        control.type === "checkbox" ? control.checked : control.value,
      ]),
    );
  }

  #control(option) {
    const control = newControl(option);
    this.#controls.set(option.name, control);
    if (!option.flag) return field(`option.${option.name}`, control);
    control.id = newId("field");
    return h(
      "div",
      { class: "field flag" },
      control,
      h("label", { for: control.id, t: `option.${option.name}` }),
    );
  }

  #update() {
    const mode = this.#controls.get("mode").value;
    const retrieval = this.#controls.get("retrieval").value;
    for (const option of MORE_OPTIONS) {
      const control = this.#controls.get(option.name);
      // The browser does not validate a disabled control.
      control.disabled = !applies(option, mode, retrieval);
      control.closest(".field").hidden = control.disabled;
    }
    this.#modeHint.replaceChildren(tr(`mode.${mode}`));
  }
}

function newControl(option) {
  if (option.values) {
    return h("select", { name: option.name, class: "mono" }, option.values.map(newChoice));
  }
  if (option.flag) return h("input", { type: "checkbox", name: option.name });
  const { name, min, max, step } = option;
  return h("input", { type: "number", name, min, max, step, tPlaceholder: "option.default" });
}

function newChoice(value) {
  return value ? h("option", { value }, value) : h("option", { value, t: "option.default" });
}

function isAllowed(control, value) {
  return (
    control.tagName === "INPUT" || [...control.options].some((option) => option.value === value)
  );
}

/**
 * Opens the `details` element around an invalid control, so that the browser can show its message.
 */
function unfold({ target }) {
  target.closest("details")?.setAttribute("open", "");
}

function holdsValue(fold) {
  return [...fold.querySelectorAll("input, select")].some(isSet);
}

function isSet(control) {
  if (control.type === "checkbox") return control.checked;
  return control.tagName === "SELECT" ? control.selectedIndex > 0 : control.value !== "";
}
