// Builds the page: the bar at its top and the views. Then shows the view that the address names.

import { changeAddress, readAddress } from "./address.js";
import { AnswerView } from "./answer_view.js";
import { CollectionsView } from "./collections_view.js";
import { DocumentsView } from "./documents_view.js";
import { h } from "./dom.js";
import { announcements } from "./notices.js";
import { ReportsView } from "./reports_view.js";
import { ScopeBar, lastTenant } from "./scope_bar.js";
import { SearchView } from "./search_view.js";
import { ServerView } from "./server_view.js";
import { Session } from "./session.js";
import { Tabs } from "./tabs.js";
import { LANGUAGES, preferredLanguage, setLanguage } from "./translation.js";
import { UploadView } from "./upload_view.js";

const THEMES = ["system", "light", "dark"];

const session = new Session();
const scope = new ScopeBar(session);
const documents = new DocumentsView(session, go);
const search = new SearchView(session, openDocument, go);
const views = {
  search,
  answer: new AnswerView(session, openDocument, go),
  documents,
  upload: new UploadView(session),
  collections: new CollectionsView(session, (collection) => scope.open(session.tenant, collection)),
  reports: new ReportsView(session),
  server: new ServerView(session),
};
const tabs = new Tabs(
  Object.entries(views).map(([name, { element }]) => [name, element]),
  go,
);

/** Shows a view, as a step of the browser's history. */
function go(name) {
  changeAddress({ view: name, ...views[name].addressFields }, { isStep: true });
  showView();
}

/** Opens a document; `target` is the argument of `DocumentView.open`. */
function openDocument(target) {
  changeAddress(
    { view: "documents", doc: target.documentId, chunk: target.chunkId },
    { isStep: true },
  );
  tabs.show("documents");
  documents.open(target);
}

function choices(key, options, chosen, onChange) {
  const select = h("select", { tLabel: key, onchange: () => onChange(select.value) }, options);
  select.value = chosen;
  return select;
}

function languageSelect(chosen) {
  const options = LANGUAGES.map(([value, name]) => h("option", { value, lang: value }, name));
  return choices("nav.language", options, chosen, (lang) => {
    setLanguage(lang);
    changeAddress({ lang });
  });
}

function themeSelect(chosen) {
  const options = THEMES.map((value) => h("option", { value, t: `theme.${value}` }));
  return choices("nav.theme", options, chosen, (theme) => {
    setTheme(theme);
    changeAddress({ theme: theme === "system" ? "" : theme });
  });
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

/**
 * Shows the tenant, the collection, the search and the view that the address names. Called after
 * the user went back or edited the address.
 */
async function showAddress() {
  const { tenant = "", collection = "" } = readAddress();
  const isOtherScope =
    tenant !== session.tenant || (collection && collection !== session.collection);
  if (isOtherScope) await scope.open(tenant, collection);
  const address = readAddress(); // The address may have changed during the call.
  const isSearch = (address.view ?? "search") === "search";
  if (isSearch && (isOtherScope || !search.isAt(address))) search.load(address);
  showView();
}

/** Shows the view that the address names. */
function showView() {
  const { view, doc, chunk } = readAddress();
  if (doc && view === "documents") documents.open({ documentId: doc, chunkId: chunk });
  else if (view === "documents") documents.close();
  views[tabs.show(view)].show?.();
}

async function start() {
  const address = readAddress();
  const theme = THEMES.includes(address.theme) ? address.theme : "system";
  const language = address.lang ?? preferredLanguage(navigator.languages);
  setTheme(theme);
  const brand = h(
    "p",
    { class: "brand" },
    h("img", { src: "icon.svg", alt: "", width: 22, height: 22 }),
    h("span", {}, "hrag"),
    h("span", { class: "brand-part", t: "nav.brand" }),
  );
  const appearance = h(
    "div",
    { class: "appearance" },
    languageSelect(language),
    themeSelect(theme),
  );
  const header = h(
    "header",
    { class: "page-header" },
    h("h1", { class: "unseen", t: "nav.title" }),
    h("div", { class: "top-row" }, brand, scope.element, appearance),
    scope.notice,
    tabs.list,
  );
  document.body.append(header, tabs.panels, announcements());
  setLanguage(language);
  await scope.open(address.tenant ?? lastTenant(), address.collection);
  if (!address.tenant) scope.selectTenant();
  search.load(address);
  showView();
  window.addEventListener("popstate", showAddress);
}

start();
