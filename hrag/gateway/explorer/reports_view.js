// Shows the report of an evaluation, which the user opens from a file. Nothing of it is sent or
// stored. Its links open the search or the document in this page.

import { fragment, readAddress } from "./address.js";
import { dropZone } from "./drop_zone.js";
import { button, data, h, tr } from "./dom.js";
import { count, duration } from "./format.js";
import { announce, fill, show } from "./notices.js";
import { QuestionTable } from "./question_table.js";
import { readReport } from "./report_file.js";

const NAMES_SHOWN = 10;
const KINDS_SHOWN = 5;

export class ReportsView {
  #session;
  #report = h("div", { class: "report" });
  #zone;

  constructor(session) {
    this.#session = session;
    const keys = {
      title: "evaluation.title",
      text: "evaluation.text",
      choose: "evaluation.choose",
    };
    const open = ([file]) => this.#open(file);
    this.#zone = dropZone(keys, open, { accept: ".json,application/json" });
    this.element = h("div", { class: "view report-view" }, this.#zone, this.#report);
  }

  async #open(file) {
    const read = async () => this.#parts(file.name, await readReport(file));
    if (!(await fill(this.#report, read, () => this.#open(file)))) return;
    this.#zone.hidden = true;
    this.#report.querySelector("h2").focus();
    announce("evaluation.opened");
  }

  #close() {
    this.#zone.hidden = false;
    show(this.#report);
    this.#zone.querySelector("button").focus();
  }

  /** Returns a link to a view of this page in the collection of a system; null if it has none. */
  #link({ tenant, collections, searches }, key, fields, system) {
    if (!(system in collections)) return null;
    const options = fields.view === "search" ? searches[system] : {};
    if (!options) return null; // The system is another tool.
    // The language, the theme and the chosen collection may change after the link was made.
    const href = () => {
      const { lang, theme } = readAddress();
      const { tenantId: chosen, collection } = this.#session.scope;
      const scope = tenant
        ? { tenant, collection: collections[system] }
        : { tenant: chosen, collection };
      return fragment({ ...scope, ...options, ...fields, lang, theme });
    };
    const node = h("a", { href: href(), t: key });
    node.onclick = () => (node.href = href());
    return node;
  }

  #parts(name, { head, table }) {
    const rows = scoreboard(head);
    return [
      h(
        "div",
        { class: "view-head" },
        h("p", { class: "meta" }, data(name)),
        button("evaluation.close", () => this.#close()),
      ),
      h("h2", { tabindex: "-1" }, data(head.first)),
      ...head.further.map((sentence) => h("p", { class: "lead" }, data(sentence))),
      rows,
      ...warnings(head),
      ...kinds(head),
      table.questions.length > 0 && [
        h("h3", { t: ["evaluation.questions", { n: table.questions.length }] }),
        h("p", { class: "hint", t: "evaluation.questions_hint" }),
        linkHint(table.explorer),
        new QuestionTable(table, h, (...link) => this.#link(table.explorer, ...link)).element,
      ],
      about(head),
    ]
      .flat()
      .filter(Boolean);
  }
}

/** Returns a sentence that says where the links of the table lead. */
function linkHint({ tenant, collections }) {
  const names = [...new Set(Object.values(collections))].join(", ");
  const key = tenant ? "evaluation.links" : "evaluation.links_here";
  return h("p", { class: "hint", t: [key, { tenant, names }] });
}

function scoreboard({ systems, costs, budget }) {
  const names = [...new Set([...systems, ...costs].map(({ name }) => name))];
  const heads = [
    "evaluation.system",
    ...(systems.length
      ? [["evaluation.found", { n: budget }], "evaluation.tokens", "evaluation.search_time"]
      : []),
    ...(costs.length ? ["evaluation.answer_tokens", "evaluation.answer_time"] : []),
  ];
  const row = (name) => {
    const found = systems.find((system) => system.name === name);
    const cost = costs.find((each) => each.name === name);
    const values = [
      ...(systems.length ? (found ? searchValues(found) : ["–", "–", "–"]) : []),
      ...(costs.length ? (cost ? answerValues(cost) : ["–", "–"]) : []),
    ];
    const cells = values.map((value, index) =>
      h("td", {}, h("span", { class: "cell-label", t: heads[index + 1] }), value),
    );
    return h("tr", {}, h("th", { scope: "row" }, data(name)), cells);
  };
  return h(
    "div",
    { class: "table-scroll card scoreboard" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, heads.map((key) => h("th", { scope: "col", t: key })))),
      h("tbody", {}, names.map(row)),
    ),
  );
}

/** Returns the mean of an estimate and the bounds of its interval, as texts. */
function percents({ mean, low, high }) {
  return [mean, low, high].map((share) => (100 * share).toFixed(1));
}

function searchValues({ recall, tokens, timeUs }) {
  const [mean, low, high] = percents(recall);
  const interval = h("small", {}, `[${low}, ${high}]`);
  const time = timeUs ? duration(timeUs) : "–";
  return [[h("b", {}, mean), " ", interval], count(Math.round(tokens)), time];
}

function answerValues({ tokens, timeUs }) {
  return [tokens ? count(Math.round(tokens)) : "–", duration(timeUs)];
}

function warnings({ warnings: sentences, failedCalls, judgeError, unstored }) {
  const names = unstored.slice(0, NAMES_SHOWN).join(", ");
  const more = unstored.length > NAMES_SHOWN ? `${names}, …` : names;
  return [
    failedCalls > 0 && tr("evaluation.failed_calls", { n: failedCalls }),
    unstored.length > 0 && tr("evaluation.unstored", { n: unstored.length, names: more }),
    judgeError && tr("evaluation.judge_failed", { error: judgeError }),
    ...sentences.map((sentence) => data(sentence)),
  ]
    .filter(Boolean)
    .map((text) => h("p", { class: "warning" }, text));
}

/** Returns for which kinds of questions which system is better. */
function kinds({ kinds: better, unclear, tooFew }) {
  if (!better.length && !unclear.length && !tooFew) return [];
  const names = [...new Set(better.map((finding) => finding.better))];
  const lists = names.map((name) =>
    kindList(
      ["evaluation.better", { system: name }],
      better.filter((finding) => finding.better === name),
    ),
  );
  return [
    h("h3", { t: "evaluation.kinds" }),
    h("div", { class: "kind-lists" }, lists, kindList("evaluation.unclear", unclear)),
    tooFew > 0 && h("p", { class: "hint", t: ["evaluation.too_few", { n: tooFew }] }),
  ];
}

function kindList(title, findings) {
  const more = findings.length - KINDS_SHOWN;
  return h(
    "div",
    {},
    h("h4", { t: title }),
    findings.length === 0 && h("p", { class: "hint", t: "evaluation.no_kind" }),
    h("ul", {}, findings.slice(0, KINDS_SHOWN).map(kindItem)),
    more > 0 && h("p", { class: "hint", t: ["dialog.more", { n: more }] }),
  );
}

function kindItem({ trait, value, difference }) {
  const [mean, low, high] = percents(difference);
  const values = { mean: `+${mean}`, low, high, n: difference.questions };
  return h("li", {}, data(`${trait}: ${value}`), " ", tr("evaluation.points", values));
}

function about({ about: facts }) {
  if (!facts.length) return null;
  const rows = facts.map(([name, value]) =>
    h(
      "div",
      {},
      h("dt", {}, data(name)),
      h("dd", {}, data(typeof value === "number" ? count(value) : value)),
    ),
  );
  return [h("h3", { t: "evaluation.about" }), h("dl", { class: "facts" }, rows)];
}
