// The bar in which the user chooses the tenant, the collection and the API key.

import { changeAddress } from "./address.js";
import { remember, remembered } from "./browser_memory.js";
import { hasKey, setKey } from "./connect.js";
import { button, field, h } from "./dom.js";
import { errorBox } from "./notices.js";
import { readRole } from "./roles.js";
import { forgetServerInfo } from "./server_info.js";
import { bindText } from "./translation.js";

// The tenant of the command line's defaults, which a first `hrag ingest` fills.
const DEFAULT_TENANT = "default";
const NO_PLACE = { q: "", doc: "", chunk: "" };

/** Returns the tenant that was opened last in this browser, or the default tenant. */
export function lastTenant() {
  return String(remembered("tenant") ?? DEFAULT_TENANT);
}

export class ScopeBar {
  #session;
  #tenant = h("input", {
    type: "text",
    class: "mono",
    spellcheck: "false",
    autocapitalize: "none",
    autocomplete: "off",
    tPlaceholder: "scope.tenant_example",
  });
  #collection = h("select", { class: "mono" });
  #keyButton = button("key.none", () => this.#askForKey(), { class: "key-button" });
  #dialog;
  #keyInput = h("input", {
    type: "password",
    class: "mono",
    autocomplete: "off",
    spellcheck: "false",
  });

  constructor(session) {
    this.#session = session;
    this.element = h(
      "form",
      { class: "scope-bar", onsubmit: (event) => event.preventDefault() },
      field("scope.tenant", this.#tenant),
      field("scope.collection", this.#collection),
      this.#keyButton,
    );
    this.notice = h("div", { class: "scope-notice" });
    this.#dialog = this.#newDialog();
    this.element.append(this.#dialog);
    this.#tenant.addEventListener("change", () => this.#changeTenant());
    this.#collection.addEventListener("change", () => this.#choose());
    for (const name of ["change", "refresh"]) {
      session.addEventListener(name, () => this.#showCollections());
    }
    this.#showCollections();
  }

  /** Opens a collection of a tenant; shows an error below the bar. */
  async open(tenant, collection = "") {
    this.#tenant.value = tenant;
    this.notice.replaceChildren();
    readRole();
    try {
      await this.#session.open(tenant, collection);
      if (this.#session.collections.length) remember("tenant", tenant);
    } catch (error) {
      this.notice.replaceChildren(errorBox(error, () => this.open(tenant, collection)));
    }
    const { tenant: opened, collection: chosen } = this.#session;
    changeAddress({ tenant: opened, collection: opened && chosen });
  }

  /** Moves the focus to the tenant, so that typing replaces it. */
  selectTenant() {
    this.#tenant.select();
  }

  #changeTenant() {
    const tenant = this.#tenant.value.trim();
    changeAddress({ tenant, collection: "", ...NO_PLACE }, { isStep: true });
    this.open(tenant);
  }

  #choose() {
    changeAddress({ collection: this.#collection.value, ...NO_PLACE }, { isStep: true });
    this.#session.choose(this.#collection.value);
  }

  #showCollections() {
    const { collections, aliases, collection } = this.#session;
    const names = collections.map(({ name }) => name);
    const others = aliases.map(({ name }) => name);
    if (collection && ![...names, ...others].includes(collection)) names.push(collection);
    const options = (values) => values.map((value) => h("option", { value }, value));
    this.#collection.replaceChildren(
      ...options(names),
      ...(others.length ? [h("optgroup", { tLabelText: "alias.title" }, options(others))] : []),
    );
    this.#collection.value = collection;
    this.#collection.disabled = names.length === 0;
  }

  #newDialog() {
    const form = h(
      "div",
      { class: "dialog-body" },
      h("h2", { id: "key-title", t: "key.title" }),
      h("p", { t: "key.text" }),
      field("key.label", this.#keyInput),
      h(
        "div",
        { class: "actions" },
        button("key.use", () => this.#useKey(this.#keyInput.value.trim()), {
          class: "main-button",
        }),
        button("key.forget", () => this.#useKey("")),
        button("action.cancel", () => this.#dialog.close(), { class: "quiet-button" }),
      ),
    );
    this.#keyInput.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // Otherwise Enter also presses the button that gets the focus.
      this.#useKey(this.#keyInput.value.trim());
    });
    return h(
      "dialog",
      { "aria-labelledby": "key-title", onclose: () => (this.#keyInput.value = "") },
      form,
    );
  }

  #askForKey() {
    this.#dialog.showModal();
    this.#keyInput.focus();
  }

  #useKey(key) {
    setKey(key);
    forgetServerInfo();
    this.#dialog.close();
    this.#keyButton.classList.toggle("is-set", hasKey());
    bindText(this.#keyButton, "", hasKey() ? "key.set" : "key.none");
    this.#keyButton.focus();
    this.open(this.#tenant.value.trim(), this.#session.collection);
  }
}
