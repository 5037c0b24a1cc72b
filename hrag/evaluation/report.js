// Shows the table of all questions of a report. It sorts and filters the table, and opens a question
// to the passages and answers of every system, side by side.
//
// The page holds the data as JSON. Questions, documents and answers are untrusted: they become text
// nodes and never HTML, and the page's content security policy runs this script alone.

"use strict";

const PAGE_ROWS = 100;
const data = JSON.parse(document.getElementById("data").textContent);
const main = data.systems.find((name) => name !== data.baseline) ?? data.baseline;
const isComparison = main !== data.baseline;
const isJudged = data.questions.some(({ verdicts }) => main in verdicts);
const BETTER = "better";

/** Returns an element with attributes and children. A child is a node or a text. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick" || name === "oninput") element[name] = value;
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

function percent(share) {
  return share === null || share === undefined ? "–" : (100 * share).toFixed(0);
}

function signed(share) {
  return share === null ? "–" : `${share > 0 ? "+" : ""}${(100 * share).toFixed(0)}`;
}

function duration(ms) {
  return ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`;
}

function recallOf(question, system) {
  return question.systems[system]?.recall ?? null;
}

/** Returns the recall of the main system minus the recall of the baseline; null without gold. */
function differenceOf(question) {
  const [ours, theirs] = [recallOf(question, main), recallOf(question, data.baseline)];
  return ours === null || theirs === null ? null : ours - theirs;
}

/** Returns 1, 0 or -1 if the judge compared the answers; otherwise null. */
function verdictOf(question) {
  return question.verdicts[main]?.outcomes[BETTER] ?? null;
}

function verdictText(outcome, system) {
  if (outcome === null || outcome === undefined) return "–";
  if (outcome === 0) return "tie";
  return outcome > 0 ? system : data.baseline;
}

function hasError(question) {
  const failed = Object.values(question.systems).some((one) => one.error || one.answer?.error);
  return failed || Object.values(question.verdicts).some(({ error }) => error);
}

const hasNowhere = (question) => question.gold.some(({ nowhere }) => nowhere);
const recalls = (question) => data.systems.map((name) => recallOf(question, name));
const isMissed = (question) =>
  recalls(question).every((recall) => recall === 0) && !hasNowhere(question);

// The choices of the filter: a label, and a function that says if a question is shown.
const CHOICES = [
  ["All questions", () => true],
  ...(isComparison
    ? [
        [`${main} finds more`, (question) => differenceOf(question) > 0],
        [`${data.baseline} finds more`, (question) => differenceOf(question) < 0],
      ]
    : []),
  ...(isJudged
    ? [
        [`${main} answers better`, (question) => verdictOf(question) === 1],
        [`${data.baseline} answers better`, (question) => verdictOf(question) === -1],
        ["Answers were compared", (question) => Object.keys(question.verdicts).length > 0],
      ]
    : []),
  ["No system finds it", isMissed],
  ["A quote is nowhere in the collection", hasNowhere],
  ["A call failed", hasError],
].filter(([, includes], index) => index === 0 || data.questions.some(includes));

// The columns: a title, a function that returns the value to sort by, and one that returns a cell.
const COLUMNS = [
  {
    title: "Question",
    value: ({ text }) => text,
    cell: (question) => questionCell(question),
  },
  ...data.systems.map((name) => ({
    title: `${name}, % found`,
    value: (question) => recallOf(question, name),
    cell: (question) => numberCell(percent(recallOf(question, name)), "", name),
  })),
  ...(isComparison
    ? [{ title: "Difference", value: differenceOf, cell: (question) => differenceCell(question) }]
    : []),
  ...(isJudged
    ? [{ title: "Better answer", value: verdictOf, cell: (question) => verdictCell(question) }]
    : []),
];
const view = {
  column: isComparison ? data.systems.length + 1 : 0,
  isDescending: isComparison,
  words: "",
  choice: 0,
  kind: null,
  rows: PAGE_ROWS,
};

function sign(value) {
  return value > 0 ? "better" : value < 0 ? "worse" : "";
}

function numberCell(text, style, label) {
  return h("td", { class: style, "data-label": label }, text);
}

function differenceCell(question) {
  const value = differenceOf(question);
  return numberCell(signed(value), sign(value), "Difference");
}

function verdictCell(question) {
  const outcome = verdictOf(question);
  const text = question.verdicts[main]?.error ? "failed" : verdictText(outcome, main);
  return numberCell(text, sign(outcome), "Better answer");
}

function questionCell(question) {
  const flags = [
    hasNowhere(question) ? h("span", { class: "flag" }, "quote nowhere in the collection") : null,
    hasError(question) ? h("span", { class: "flag" }, "a call failed") : null,
  ];
  const open = h(
    "button",
    { type: "button", class: "open", "aria-expanded": "false" },
    question.text,
  );
  return h("td", { class: "text" }, open, " ", h("small", {}, question.id), flags);
}

function compareValues(first, second) {
  if (first === second) return 0;
  if (first === null) return 1;
  if (second === null) return -1;
  const order = typeof first === "string" ? first.localeCompare(second) : first - second;
  return view.isDescending ? -order : order;
}

function includesWords(question) {
  if (!view.words) return true;
  const answers = Object.values(question.systems).map(({ answer }) => answer?.text ?? "");
  return [question.id, question.text, question.reference, ...answers]
    .join("\n")
    .toLowerCase()
    .includes(view.words);
}

function shownQuestions() {
  const includes = CHOICES[view.choice][1];
  const { value } = COLUMNS[view.column];
  return data.questions
    .filter((question) => includes(question) && includesWords(question))
    .filter(({ kinds }) => !view.kind || kinds[view.kind[0]] === view.kind[1])
    .sort((a, b) => compareValues(value(a), value(b)));
}

/** Returns the passage's text, with the gold marked. */
function markedText({ parts, cutStart, cutEnd }) {
  const nodes = parts.map((part, index) => (index % 2 ? h("mark", {}, part) : part));
  // A long passage scrolls, so the keyboard must reach it.
  const attributes = { class: "passage-text", tabindex: 0 };
  return h("p", attributes, cutStart ? "… " : null, nodes, cutEnd ? " …" : null);
}

/**
 * Returns a link into the explorer, in a system's collection; null if the report has no explorer.
 * `path` has the view and, optionally, a document. The form of the fragment is described in the
 * explorer's `address.js`.
 */
function explorerLink(text, path, fields, system) {
  if (!data.explorer) return null;
  const { address, tenant, collections } = data.explorer;
  const parts = [tenant, collections[system], ...path].map(encodeURIComponent);
  const href = `${address}/#/${parts.join("/")}?${new URLSearchParams(fields)}`;
  return h("a", { href, target: "_blank", rel: "noreferrer" }, text);
}

function passageElement(passage, number, system, citations) {
  const isCited = citations.includes(number);
  const hasGold = passage.right || passage.parts.length > 1;
  return h(
    "li",
    { class: hasGold ? "passage has-gold" : "passage" },
    h(
      "p",
      { class: "passage-heading" },
      h("b", {}, `[${number}] `),
      passage.heading,
      " ",
      hasGold ? h("span", { class: "right" }, passage.right ? "expected document" : "gold") : null,
      isCited ? h("span", { class: "cited" }, "cited") : null,
      " ",
      explorerLink("open", ["documents", passage.document], { chunk: passage.chunk }, system),
    ),
    markedText(passage),
  );
}

function answerElement(answer) {
  if (!answer) return null;
  const facts = [
    answer.read ? `${answer.read.toLocaleString("en")} tokens read` : null,
    answer.written ? `${answer.written.toLocaleString("en")} written` : null,
    answer.ms ? duration(answer.ms) : null,
    answer.citations.length ? `cites ${answer.citations.map((n) => `[${n}]`).join(" ")}` : null,
  ].filter(Boolean);
  return h(
    "div",
    { class: "answer" },
    h("h4", {}, "Answer"),
    h("p", { class: "answer-text" }, answer.error ? `Failed: ${answer.error}` : answer.text),
    h("p", { class: "note" }, facts.join(" · ")),
  );
}

function systemElement(question, name) {
  const system = question.systems[name];
  const facts = [
    system.recall === null
      ? null
      : `${percent(system.recall)} % of the gold in ${system.tokens.toLocaleString("en")} tokens`,
    system.ms ? duration(system.ms) : null,
  ].filter(Boolean);
  const source = system.isAnswered ? ", which the answer was made from" : "";
  const search = { q: question.text, ...data.explorer?.searches[name] };
  return h(
    "section",
    { class: "system" },
    h("h3", {}, name),
    h(
      "p",
      { class: "note" },
      facts.join(" · "),
      " ",
      explorerLink("search again", ["search"], search, name),
    ),
    system.error ? h("p", { class: "warning" }, system.error) : null,
    answerElement(system.answer),
    h("h4", {}, `${system.passages.length} passages${source}`),
    h(
      "ol",
      { class: "passages" },
      system.passages.map((passage, index) =>
        passageElement(passage, index + 1, name, system.answer?.citations ?? []),
      ),
    ),
  );
}

function verdictElement(question, name) {
  const { outcomes, reasons, error } = question.verdicts[name];
  if (error) return h("p", { class: "warning" }, `The judge failed: ${error}`);
  const shown = data.criteria.map((criterion) => [
    h("dt", {}, criterion === BETTER ? "as a whole" : criterion),
    h("dd", {}, verdictText(outcomes[criterion], name)),
  ]);
  const orders = [
    [name, data.baseline],
    [data.baseline, name],
  ];
  return h(
    "div",
    { class: "verdict" },
    h("h4", {}, `Verdict: ${name} against ${data.baseline}`),
    h("dl", {}, shown),
    reasons.length
      ? reasons.map((reason, index) =>
          h(
            "p",
            { class: "reason" },
            reason || "(no reason given)",
            h("small", {}, ` A is ${orders[index][0]}, B is ${orders[index][1]}.`),
          ),
        )
      : h("p", { class: "note" }, "The answers are identical, so the judge was not asked."),
  );
}

function goldElement(question) {
  const pieces = question.gold.map(({ text, document: name, nowhere }) =>
    h(
      "li",
      {},
      text ? h("mark", {}, text) : null,
      name ? h("small", {}, ` ${text ? "in" : "document"} ${name}`) : null,
      nowhere ? h("span", { class: "flag" }, "nowhere in the collection") : null,
    ),
  );
  return [
    pieces.length ? [h("h4", {}, "What is right"), h("ul", { class: "gold" }, pieces)] : null,
    question.reference
      ? [h("h4", {}, "Reference answer"), h("p", { class: "answer-text" }, question.reference)]
      : null,
  ].flat();
}

function detailElement(question) {
  const kinds = Object.entries(question.kinds).map(([trait, value]) => `${trait}: ${value}`);
  return h(
    "div",
    { class: "detail" },
    goldElement(question),
    Object.keys(question.verdicts).map((name) => verdictElement(question, name)),
    h(
      "div",
      { class: "systems" },
      Object.keys(question.systems).map((name) => systemElement(question, name)),
    ),
    h("p", { class: "note" }, kinds.join(" · ")),
  );
}

/** Scrolls the text of a long passage to its first gold. */
function showGold(text) {
  const gold = text.querySelector("mark");
  if (gold) text.scrollTop = gold.offsetTop - text.clientHeight / 2;
}

function toggle(button, row, question) {
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  if (isOpen) row.nextSibling.remove();
  else {
    const cell = h("td", { colspan: COLUMNS.length }, detailElement(question));
    row.after(h("tr", { class: "detail-row" }, cell));
    for (const text of cell.querySelectorAll(".passage-text")) showGold(text);
  }
}

function rowElement(question) {
  const row = h(
    "tr",
    { class: "question-row" },
    COLUMNS.map(({ cell }) => cell(question)),
  );
  const button = row.querySelector("button");
  button.onclick = () => toggle(button, row, question);
  return row;
}

const body = h("tbody");
const count = h("p", { class: "note", role: "status" });
const more = h("button", { type: "button", onclick: () => show(view.rows + PAGE_ROWS) }, "");
const heads = COLUMNS.map(({ title }, index) =>
  h(
    "th",
    { scope: "col" },
    h("button", { type: "button", class: "sort", onclick: () => sortBy(index) }, title),
  ),
);

function sortBy(index) {
  view.isDescending = view.column === index ? !view.isDescending : index > 0;
  view.column = index;
  show();
}

/** Fills the table with the first `rows` of the questions that the filters include. */
function show(rows = PAGE_ROWS) {
  view.rows = rows;
  const questions = shownQuestions();
  body.replaceChildren(...questions.slice(0, rows).map(rowElement));
  heads.forEach((head, index) => {
    const direction = view.isDescending ? "descending" : "ascending";
    head.setAttribute("aria-sort", index === view.column ? direction : "none");
  });
  count.textContent = `${questions.length} of ${data.questions.length} questions`;
  more.hidden = questions.length <= rows;
  more.textContent = `Show ${Math.min(PAGE_ROWS, questions.length - rows)} more`;
}

function labelled(text, control) {
  return h("label", {}, h("span", {}, text), control);
}

function kindOptions() {
  const values = new Map();
  for (const { kinds } of data.questions) {
    for (const [trait, value] of Object.entries(kinds)) {
      if (!values.has(trait)) values.set(trait, new Set());
      values.get(trait).add(value);
    }
  }
  const groups = [...values].map(([trait, names]) =>
    h(
      "optgroup",
      { label: trait },
      [...names].sort().map((name) => h("option", { value: JSON.stringify([trait, name]) }, name)),
    ),
  );
  return [h("option", { value: "" }, "Every kind"), groups].flat();
}

function filters() {
  const words = h("input", { type: "search" });
  words.oninput = () => {
    view.words = words.value.trim().toLowerCase();
    show();
  };
  const choice = h(
    "select",
    {},
    CHOICES.map(([label], index) => h("option", { value: index }, label)),
  );
  choice.oninput = () => {
    view.choice = Number(choice.value);
    show();
  };
  const kind = h("select", {}, kindOptions());
  kind.oninput = () => {
    view.kind = kind.value ? JSON.parse(kind.value) : null;
    show();
  };
  return h(
    "div",
    { class: "filters" },
    labelled("Words", words),
    labelled("Outcome", choice),
    labelled("Kind", kind),
  );
}

document.getElementById("questions").append(
  filters(),
  count,
  h("table", { class: "questions" }, h("thead", {}, h("tr", {}, heads)), body),
  more,
);
show();
