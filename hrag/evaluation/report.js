// Shows the table of all questions in the HTML report. The page contains this text after the
// modules of the explorer that make the table, in one script.
//
// The page holds the data as JSON. Questions, documents and answers are untrusted: they become text
// nodes and never HTML, and the page's content security policy runs this script alone.

const data = JSON.parse(document.getElementById("data").textContent);

function englishText(key, values = {}) {
  return formatText(QUESTION_TEXTS[key], values, "en");
}

/** Returns an element with attributes and children, as the function of this name in `dom.js`. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (name === "t") element.textContent = englishText(...[value].flat());
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child || child === 0));
  return element;
}

/**
 * Returns a link into the explorer, in a system's collection; null if the report has no explorer.
 * The form of the fragment is described in the explorer's `address.js`.
 */
function link(key, { view, doc, ...fields }, system) {
  if (!data.explorer) return null;
  const { address, tenant, collections, searches } = data.explorer;
  const path = [tenant, collections[system], view, doc].filter((part) => part !== undefined);
  const options = view === "search" ? searches[system] : {};
  if (!options) return null; // The system is another tool.
  const query = new URLSearchParams({ ...fields, ...options });
  const href = `${address}/#/${path.map(encodeURIComponent).join("/")}?${query}`;
  return h("a", { href, target: "_blank", rel: "noreferrer", t: key });
}

document.getElementById("questions").append(new QuestionTable(data, h, link).element);
