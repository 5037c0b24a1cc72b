// Searches for one text with one search setting, or with two settings. The results of two settings
// are shown side by side.

import { changeAddress } from "./address.js";
import { call } from "./connect.js";
import { button, field, h } from "./dom.js";
import { firstSteps } from "./first_steps.js";
import { announce, emptyState, fill } from "./notices.js";
import { storeSearch } from "./query_history.js";
import { RecentSearches } from "./recent_searches.js";
import { ResultList, compare } from "./result_list.js";
import { searchFields, searchIn } from "./search_address.js";
import { SettingForm } from "./setting_form.js";

export class SearchView {
  #session;
  #onOpen;
  #go;
  #running = new AbortController();
  #lists = []; // The ResultLists that are shown.
  #latest = searchFields({}); // The fields of the search that was loaded or run last.
  #recent;
  #text = h("input", {
    type: "search",
    required: true,
    autocomplete: "off",
    tPlaceholder: "search.placeholder",
  });
  #isTwo = h("input", { type: "checkbox", id: "compare", role: "switch" });
  /** What the page shows until the first search: the first steps, or an invitation to search. */
  #beforeSearch = null;
  #columns = ["a", "b"].map((name) => ({
    name,
    form: new SettingForm(`setting.${name}`),
    results: h("div", { class: "result-column", role: "region", tLabel: `results.${name}` }),
  }));

  /** `onOpen` is called with an argument for `DocumentView.open`, and `go` with a view's name. */
  constructor(session, onOpen, go) {
    this.#session = session;
    this.#onOpen = onOpen;
    this.#go = go;
    this.#recent = new RecentSearches(session);
    const copy = button("setting.copy", () => this.#copy(), { class: "quiet-button copy-setting" });
    const forms = h(
      "div",
      { class: "columns" },
      this.#columns.map(({ name, form }) =>
        h("div", { class: `column-${name}` }, form.element, name === "b" && copy),
      ),
    );
    const form = h(
      "form",
      { class: "search-form", role: "search", onsubmit: (event) => this.#submit(event) },
      h(
        "div",
        { class: "query-row" },
        field("search.text", this.#text),
        button("search.run", null, { type: "submit", class: "main-button" }),
      ),
      this.#recent.element,
      h(
        "div",
        { class: "flag compare-switch" },
        this.#isTwo,
        h("label", { for: "compare", t: "search.compare" }),
      ),
      forms,
    );
    this.element = h(
      "div",
      { class: "view search-view" },
      form,
      legend(),
      h(
        "div",
        { class: "columns" },
        this.#columns.map(({ name, results }) => h("div", { class: `column-${name}` }, results)),
      ),
    );
    this.#isTwo.addEventListener("change", () => this.#changeColumns());
    session.addEventListener("refresh", () => {
      if (this.#beforeSearch.parentElement) this.#showBeforeSearch();
    });
    session.addEventListener("change", () => this.#changeScope());
    this.#showColumns();
    this.#clear();
  }

  /** Shows in the form the search that an address contains, and runs it if it has a query. */
  load(address) {
    const { q, a, b } = searchIn(address);
    this.#latest = searchFields({ q, a, b });
    this.#text.value = q;
    this.#isTwo.checked = Boolean(b);
    this.#columns[0].form.load(a);
    if (b) this.#columns[1].form.load(b);
    this.#showColumns();
    if (q && this.#session.collections.length) this.#search({ isStep: false });
    else this.#clear();
  }

  /** The fields of the page's address for the search that was loaded or run last. */
  get addressFields() {
    return this.#latest;
  }

  /** Returns true if an address contains the search that was loaded or run last. */
  isAt(address) {
    return JSON.stringify(searchFields(searchIn(address))) === JSON.stringify(this.#latest);
  }

  #changeScope() {
    this.#latest = { ...this.#latest, q: "" };
    this.#recent.update();
    this.#clear();
  }

  #shown() {
    return this.#isTwo.checked ? this.#columns : this.#columns.slice(0, 1);
  }

  #showColumns() {
    this.element.classList.toggle("is-single", !this.#isTwo.checked);
  }

  /** Without the setting B, no badge compares passages with its results any more. */
  #changeColumns() {
    this.#showColumns();
    this.#columns[1].results.replaceChildren();
    for (const card of this.#lists[0]?.cards ?? []) card.clearNotes();
  }

  #copy() {
    const [a, b] = this.#columns;
    b.form.load(a.form.saved);
  }

  #clear() {
    this.#running.abort();
    this.#lists = [];
    this.#showBeforeSearch();
    this.#columns[1].results.replaceChildren();
  }

  #showBeforeSearch() {
    this.#beforeSearch =
      firstSteps(this.#session, this.#go) ?? emptyState("search.empty_title", "search.empty_text");
    this.#columns[0].results.replaceChildren(this.#beforeSearch);
  }

  #submit(event) {
    event.preventDefault();
    this.#search({ isStep: true });
  }

  async #search({ isStep }) {
    this.#running.abort();
    this.#running = new AbortController();
    const { signal } = this.#running;
    const shown = this.#shown();
    this.#store(shown, isStep);
    const lists = await Promise.all(shown.map((column) => this.#fillColumn(column, signal)));
    if (signal.aborted) return;
    const shownLists = lists.filter(Boolean);
    this.#lists = shownLists;
    const longestUs = Math.max(...shownLists.map(({ timings }) => timings.totalUs));
    for (const { timings } of shownLists) timings.setScale(longestUs);
    if (shownLists.length === 2) {
      compare(lists[0].cards, lists[1].cards, "B");
      compare(lists[1].cards, lists[0].cards, "A");
    }
    if (shownLists.length) announce("search.found", { n: shownLists[0].cards.length });
  }

  /** Puts the search of the form into the address and into the list of recent searches. */
  #store([a, b], isStep) {
    // B always names its mode, because a field of B says that there are two settings.
    const second = b && { mode: b.form.mode, ...b.form.saved };
    this.#latest = searchFields({ q: this.#text.value, a: a.form.saved, b: second });
    changeAddress({ view: "search", ...this.#latest }, { isStep });
    const { tenant, collection } = this.#session;
    storeSearch(tenant, { collection, ...this.#latest });
    this.#recent.update();
  }

  /** Returns the ResultList of a column; undefined after an error, which the column shows. */
  async #fillColumn({ form, results }, signal) {
    let list;
    await fill(
      results,
      async () => {
        const began = performance.now();
        const request = { ...this.#session.scope, text: this.#text.value, ...form.request };
        const response = await call("RetrieverService/Search", request, signal);
        list = new ResultList(response, request, {
          roundTripMs: performance.now() - began,
          onOpen: this.#onOpen,
          hasCode: true,
        });
        return list.element;
      },
      () => this.#search({ isStep: false }),
    );
    list?.settle();
    list?.offerPages(this.#session);
    return list;
  }
}

function legend() {
  const kinds = ["leaf", "term", "cited"].map((kind) =>
    h("li", {}, h("mark", { class: `mark-${kind}`, t: `legend.${kind}` })),
  );
  return h("ul", { class: "legend", tLabel: "legend.title" }, kinds);
}
