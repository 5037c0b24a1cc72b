// Lists the last searches of the tenant as links.

import { fragment } from "./address.js";
import { button, data, h, tr } from "./dom.js";
import { announce } from "./notices.js";
import { forgetSearches, lastSearches } from "./query_history.js";
import { searchIn } from "./search_address.js";

export class RecentSearches {
  #session;
  #list = h("ol", { class: "recent-list" });

  constructor(session) {
    this.#session = session;
    this.element = h(
      "details",
      { class: "fold recent", hidden: true },
      h("summary", { t: "recent.title" }),
      h("p", { class: "hint", t: "recent.text" }),
      this.#list,
      button("recent.clear", () => this.#clear(), { class: "quiet-button" }),
    );
  }

  /** Lists the searches that are stored now. */
  update() {
    const { tenant, collection } = this.#session;
    const searches = tenant ? lastSearches(tenant) : [];
    this.element.hidden = searches.length === 0;
    this.#list.replaceChildren(...searches.map((fields) => row(tenant, collection, fields)));
  }

  #clear() {
    forgetSearches(this.#session.tenant);
    this.update();
    announce("recent.cleared");
  }
}

function row(tenant, shownCollection, fields) {
  const { collection, q } = fields;
  const { a, b } = searchIn(fields);
  const settings = [...settingParts(a), ...(b ? [[tr("setting.b")], ...settingParts(b)] : [])];
  const href = fragment({ tenant, view: "search", ...fields });
  return h(
    "li",
    {},
    h("a", { href }, data(q)),
    h(
      "span",
      { class: "meta" },
      collection !== shownCollection && h("code", {}, data(collection)),
      settings.map((parts) => h("span", {}, parts)),
    ),
  );
}

/** Returns the parts of the texts of a setting's options and conditions. */
function settingParts({ filters, ...options }) {
  const named = Object.entries(options).map(([name, value]) => [
    tr(`option.${name}`),
    " ",
    data(value),
  ]);
  const conditions = filters.rows.map(([key, operator, value]) => [
    data(key),
    " ",
    tr(`filter.${operator}`),
    " ",
    data(value),
  ]);
  return [...named, ...conditions];
}
