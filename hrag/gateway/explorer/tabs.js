// Tabs that follow the ARIA pattern for tabs: the arrow keys move between tabs, and each tab shows
// its panel.

import { h } from "./dom.js";

export class Tabs {
  #tabs = new Map();
  #onChoose;

  /**
   * `views` are pairs of a name and the content of a panel, in the order of the tabs. `onChoose` is
   * called with the name of the view that the user chooses.
   */
  constructor(views, onChoose) {
    this.#onChoose = onChoose;
    this.list = h("div", {
      class: "tabs",
      role: "tablist",
      tLabel: "nav.views",
      onkeydown: (event) => this.#move(event),
    });
    this.panels = h("main", {});
    for (const [name, content] of views) this.#add(name, content);
  }

  /** Shows a view, the first view if there is none with this name; returns the name of the view. */
  show(name) {
    const shown = this.#tabs.has(name) ? name : this.#tabs.keys().next().value;
    for (const [tabName, { tab, panel }] of this.#tabs) {
      const isShown = tabName === shown;
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
      panel.hidden = !isShown;
    }
    return shown;
  }

  #add(name, content) {
    const ids = { id: `tab-${name}`, "aria-controls": `panel-${name}` };
    const tab = h("button", {
      type: "button",
      role: "tab",
      t: `nav.${name}`,
      ...ids,
      onclick: () => this.#onChoose(name),
    });
    const panel = h(
      "section",
      { id: ids["aria-controls"], role: "tabpanel", "aria-labelledby": ids.id, hidden: true },
      content,
    );
    this.#tabs.set(name, { tab, panel });
    this.list.append(tab);
    this.panels.append(panel);
  }

  #move(event) {
    const names = [...this.#tabs.keys()];
    const at = names.findIndex((name) => this.#tabs.get(name).tab === event.target);
    const step = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[
      event.key
    ];
    if (step === undefined) return;
    event.preventDefault();
    const name = names[(step + names.length) % names.length];
    this.#onChoose(name);
    this.#tabs.get(name).tab.focus();
  }
}
