// Lists the tenant's collections with their settings and their aliases. Collections are created,
// chosen and deleted here, and aliases are set and deleted.

import { nameList, openDialog } from "./action_dialog.js";
import { openCollectionForm } from "./collection_form.js";
import { call } from "./connect.js";
import { button, data, facts, field, h, tr } from "./dom.js";
import { count } from "./format.js";
import { announce, emptyState } from "./notices.js";
import { needsRole, roleNote } from "./roles.js";
import { collectionFacts } from "./server_view.js";

export class CollectionsView {
  #session;
  #onChoose;
  #usage = h("div", {});
  #list = h("div", { class: "collection-list" });
  #writeNote = roleNote("write", "role.collections");
  #adminNote = roleNote("admin", "role.delete_collections");

  /** `onChoose` is called with the name of a collection, and returns a promise. */
  constructor(session, onChoose) {
    this.#session = session;
    this.#onChoose = onChoose;
    this.element = h(
      "div",
      { class: "view collections-view" },
      h(
        "div",
        { class: "view-head" },
        h("h2", { t: "nav.collections" }),
        this.#writing("collection.new", () => this.#create(), "main-button"),
      ),
      this.#writeNote,
      this.#adminNote,
      this.#usage,
      this.#list,
    );
    for (const name of ["change", "refresh"]) session.addEventListener(name, () => this.#render());
    this.#render();
  }

  #render() {
    const { tenant, collections } = this.#session;
    this.#usage.replaceChildren();
    if (!collections.length) {
      const key = tenant ? "none" : "no_tenant";
      this.#list.replaceChildren(emptyState(`collection.${key}_title`, `collection.${key}_text`));
      return;
    }
    const documents = collections.reduce((sum, each) => sum + Number(each.documentCount ?? 0), 0);
    this.#usage.replaceChildren(
      facts(
        [
          ["nav.collections", count(collections.length)],
          ["status.tenant_documents", count(documents)],
        ],
        "figures",
      ),
    );
    this.#list.replaceChildren(...collections.map((collection) => this.#card(collection)));
  }

  #card(collection) {
    const { name } = collection;
    const isChosen = this.#session.chosen?.name === name;
    const aliases = this.#session.aliasesOf(name);
    return h(
      "article",
      { class: "card collection", "aria-label": name },
      h(
        "header",
        {},
        h("h3", {}, data(name)),
        isChosen && h("span", { class: "badge", t: "collection.chosen" }),
      ),
      collectionFacts(collection),
      aliases.length > 0 && this.#aliasList(aliases),
      h(
        "footer",
        {},
        button("collection.use", () => this.#onChoose(name), { disabled: isChosen }),
        this.#writing("alias.add", () => this.#setAlias("", name), "quiet-button"),
        needsRole(
          "admin",
          button("collection.delete", () => this.#delete(collection, aliases), {
            class: "quiet-button is-bad",
          }),
          this.#adminNote,
        ),
      ),
    );
  }

  /** Returns a button for an action that needs the role `write`. */
  #writing(key, onclick, className) {
    return needsRole("write", button(key, onclick, { class: className }), this.#writeNote);
  }

  #aliasList(aliases) {
    const row = (alias) =>
      h(
        "li",
        {},
        h("code", {}, data(alias.name)),
        this.#writing(
          "alias.move",
          () => this.#setAlias(alias.name, alias.collection),
          "quiet-button",
        ),
        this.#writing("alias.delete", () => this.#deleteAlias(alias), "quiet-button is-bad"),
      );
    return h(
      "div",
      { class: "aliases" },
      h("h4", { t: "alias.title" }),
      h("ul", {}, aliases.map(row)),
    );
  }

  #create() {
    openCollectionForm(this.#session.tenant, async (name) => {
      await this.#onChoose(name);
      announce("collection.created");
    });
  }

  #delete({ name, documentCount, settings }, aliases) {
    openDialog({
      title: ["collection.delete_title", { name }],
      action: "collection.delete",
      isDestructive: true,
      typed: name,
      content: [
        h("p", { t: ["collection.delete_text", { n: Number(documentCount ?? 0) }] }),
        facts([
          ["server.embedder", h("code", {}, data(settings.embedder ?? ""))],
          ["server.levels", (settings.levelSizes ?? []).map(count).join(" / ")],
        ]),
        aliases.length > 0 && [
          h("p", { class: "warning", t: "collection.delete_aliases" }),
          nameList(aliases.map((alias) => alias.name)),
        ],
      ],
      run: async () => {
        const { tenant, chosen } = this.#session;
        await call("IndexerService/DeleteCollection", { tenantId: tenant, name });
        announce("collection.deleted");
        await (chosen?.name === name ? this.#onChoose("") : this.#session.refresh());
      },
    });
  }

  #setAlias(alias, collection) {
    const { tenant, collections } = this.#session;
    const name = h("input", {
      type: "text",
      class: "mono",
      required: true,
      spellcheck: "false",
      autocomplete: "off",
      autofocus: !alias,
      readonly: Boolean(alias),
    });
    name.value = alias;
    const target = h(
      "select",
      { class: "mono" },
      collections.map(({ name: value }) => h("option", { value }, value)),
    );
    target.value = collection;
    openDialog({
      title: alias ? ["alias.move_title", { alias }] : "alias.add_title",
      action: alias ? "alias.move" : "alias.add",
      content: [
        h("p", {}, tr("alias.text")),
        field("alias.name", name),
        field("scope.collection", target),
      ],
      run: async () => {
        const request = { tenantId: tenant, alias: name.value.trim(), collection: target.value };
        await call("IndexerService/SetAlias", request);
        await this.#session.refresh();
        announce("alias.was_set");
      },
    });
  }

  #deleteAlias({ name, collection }) {
    openDialog({
      title: ["alias.delete_title", { alias: name }],
      action: "alias.delete",
      isDestructive: true,
      content: [h("p", { t: ["alias.delete_text", { collection }] })],
      run: async () => {
        const { tenant, collection: chosen } = this.#session;
        await call("IndexerService/DeleteAlias", { tenantId: tenant, alias: name });
        announce("alias.deleted");
        await (chosen === name ? this.#onChoose(collection) : this.#session.refresh());
      },
    });
  }
}
