// Names the documentation: the reference of the API, which the gateway serves, and the guides, which
// are files of the project.

import { h } from "./dom.js";

const GUIDES = [
  "explorer",
  "search",
  "modes",
  "hybrid-search",
  "filters",
  "reranking",
  "answers-and-agents",
  "formats",
  "http",
  "access",
  "troubleshooting",
];

export function guides() {
  const link = (href, key) => h("li", {}, h("a", { href, t: key }));
  return h(
    "section",
    { class: "card" },
    h("h2", { t: "guides.title" }),
    h("ul", { class: "guides" }, link("docs", "guides.api"), link("openapi.json", "guides.openapi")),
    h("p", { class: "hint", t: "guides.text" }),
    h(
      "ul",
      { class: "guides" },
      GUIDES.map((name) => h("li", {}, h("code", {}, `docs/guide/${name}.md`))),
    ),
  );
}
