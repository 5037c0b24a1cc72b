// Shows a search as a program, which can be copied.

import { hasKey } from "./connect.js";
import { button, h } from "./dom.js";
import { announce } from "./notices.js";
import { LANGUAGES } from "./request_code.js";

const SEARCH = "hrag.v1.RetrieverService/Search";

/** Returns a node that shows `request`, which is the SearchRequest that the page has sent. */
export function requestView(request) {
  const language = h(
    "select",
    { tLabel: "code.language", onchange: () => show() },
    Object.keys(LANGUAGES).map((name) => h("option", { value: name }, name)),
  );
  const code = h("pre", { class: "code-block", tabindex: "0" });
  const show = () => {
    const url = new URL(SEARCH, location.href.split("#")[0]).href;
    code.textContent = LANGUAGES[language.value](url, request, hasKey());
  };
  show();
  const copy = button("code.copy", () => copyText(code), { class: "quiet-button" });
  return h(
    "details",
    { class: "fold", ontoggle: show },
    h("summary", { t: "code.title" }),
    h("div", { class: "code-tools" }, language, copy),
    code,
    h("p", { class: "hint", t: "code.hint" }),
  );
}

/** Copies the text of a node. Browsers have no clipboard on pages without TLS of other machines. */
async function copyText(node) {
  if (navigator.clipboard) await navigator.clipboard.writeText(node.textContent);
  else {
    getSelection().selectAllChildren(node);
    document.execCommand("copy");
  }
  announce("code.copied");
}
