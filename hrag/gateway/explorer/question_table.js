// The table of all questions of a report of an evaluation. It can be sorted and filtered, and a
// question opens to the passages and answers of every system, side by side.
//
// Both the HTML report of `hrag eval` and the explorer show it. So this module imports nothing: the
// function that makes elements is an argument. Questions, documents and answers are untrusted, and
// become only text.

const PAGE_ROWS = 100;
const BETTER = "better";
const [IN_DOCUMENT, WHOLE_DOCUMENT] = ["questions.in_document", "questions.whole_document"];
const CRITERIA = {
  accuracy: "questions.accuracy",
  completeness: "questions.completeness",
  logic: "questions.logic",
  [BETTER]: "questions.as_a_whole",
};

export class QuestionTable {
  #data;
  #h;
  #link;
  #main; // The system that is compared with the baseline.
  #isComparison;
  #choices;
  #columns;
  #heads;
  #column;
  #isDescending;
  #words = "";
  #choice = 0;
  #kind = null;
  #body;
  #count;
  #more;

  /**
   * `data` are the systems, the baseline and the questions, as `hrag.evaluation.html_questions`
   * describes them. `h` makes an element, as in `dom.js`. `link` returns a link into the explorer,
   * or null: its arguments are the key of its text, the fields of the explorer's address, and the
   * system whose collection it opens.
   */
  constructor(data, h, link) {
    this.#data = data;
    this.#h = h;
    this.#link = link;
    this.#main = data.systems.find((name) => name !== data.baseline) ?? data.baseline;
    this.#isComparison = this.#main !== data.baseline;
    this.#choices = this.#newChoices();
    this.#columns = this.#newColumns();
    this.#column = this.#isComparison ? data.systems.length + 1 : 0;
    this.#isDescending = this.#isComparison;
    this.#body = h("tbody");
    this.#count = h("p", { class: "question-note", role: "status" });
    this.#more = h("button", { type: "button" });
    this.#heads = this.#columns.map((column, index) => this.#head(column, index));
    const table = h(
      "table",
      { class: "questions" },
      h("thead", {}, h("tr", {}, this.#heads)),
      this.#body,
    );
    const scroll = h("div", { class: "question-scroll" }, table);
    const parts = [this.#filters(), this.#count, scroll, this.#more];
    this.element = h("div", { class: "question-table" }, parts);
    this.#show();
  }

  /** Returns the filters for outcomes: a text, and a function that says if a question is shown. */
  #newChoices() {
    const { baseline, questions } = this.#data;
    const main = this.#main;
    const isJudged = questions.some(({ verdicts }) => main in verdicts);
    const comparison = [
      [["questions.finds_more", { system: main }], (question) => this.#difference(question) > 0],
      [
        ["questions.finds_more", { system: baseline }],
        (question) => this.#difference(question) < 0,
      ],
    ];
    const judged = [
      [["questions.answers_better", { system: main }], (each) => this.#verdict(each) === 1],
      [["questions.answers_better", { system: baseline }], (each) => this.#verdict(each) === -1],
      ["questions.compared", (question) => Object.keys(question.verdicts).length > 0],
    ];
    return [
      ["questions.all", () => true],
      ...(this.#isComparison ? comparison : []),
      ...(isJudged ? judged : []),
      ["questions.missed", (question) => this.#isMissed(question)],
      ["questions.nowhere", hasNowhere],
      ["questions.failed", hasError],
    ].filter(([, includes], index) => index === 0 || questions.some(includes));
  }

  /** Returns the columns: a title, the value to sort by, and a function that returns a cell. */
  #newColumns() {
    const { systems, questions } = this.#data;
    const found = (name) => ["questions.found", { system: name }];
    const columns = [
      {
        title: "questions.question",
        value: ({ text }) => text,
        cell: (question) => this.#questionCell(question),
      },
      ...systems.map((name) => ({
        title: found(name),
        value: (question) => recallOf(question, name),
        cell: (question) => this.#cell(percent(recallOf(question, name)), "number", found(name)),
      })),
    ];
    if (this.#isComparison) {
      columns.push({
        title: "questions.difference",
        value: (question) => this.#difference(question),
        cell: (question) => this.#differenceCell(question),
      });
    }
    if (questions.some(({ verdicts }) => this.#main in verdicts)) {
      columns.push({
        title: "questions.better_answer",
        value: (question) => this.#verdict(question),
        cell: (question) => this.#verdictCell(question),
      });
    }
    return columns;
  }

  #head({ title }, index) {
    const sort = () => {
      this.#isDescending = this.#column === index ? !this.#isDescending : index > 0;
      this.#column = index;
      this.#show();
    };
    const attributes = { type: "button", class: "question-sort", t: title, onclick: sort };
    return this.#h("th", { scope: "col" }, this.#h("button", attributes));
  }

  /** The recall of the main system minus the recall of the baseline; null without gold. */
  #difference(question) {
    const ours = recallOf(question, this.#main);
    const theirs = recallOf(question, this.#data.baseline);
    return ours === null || theirs === null ? null : ours - theirs;
  }

  /** Returns 1, 0 or -1 if the judge compared the answers; otherwise null. */
  #verdict(question) {
    return question.verdicts[this.#main]?.outcomes[BETTER] ?? null;
  }

  #isMissed(question) {
    const recalls = this.#data.systems.map((name) => recallOf(question, name));
    return recalls.every((recall) => recall === 0) && !hasNowhere(question);
  }

  /** Returns a cell. On narrow screens, which have no columns, the cell shows its label. */
  #cell(content, style, label) {
    const shown = this.#h("span", { class: "cell-label", t: label });
    return this.#h("td", { class: style }, shown, this.#h("span", {}, content));
  }

  #differenceCell(question) {
    const value = this.#difference(question);
    return this.#cell(signed(value), `number ${sign(value)}`, "questions.difference");
  }

  #verdictCell(question) {
    const outcome = this.#verdict(question);
    const hasFailed = question.verdicts[this.#main]?.error;
    const text = hasFailed
      ? this.#h("span", { t: "questions.not_compared" })
      : this.#winner(outcome, this.#main);
    return this.#cell(text, sign(outcome), "questions.better_answer");
  }

  #winner(outcome, system) {
    if (outcome === null || outcome === undefined) return "–";
    if (outcome === 0) return this.#h("span", { t: "questions.tie" });
    return outcome > 0 ? system : this.#data.baseline;
  }

  #questionCell(question) {
    const h = this.#h;
    const attributes = { type: "button", class: "question-open", "aria-expanded": "false" };
    return h(
      "td",
      { class: "text" },
      h("button", attributes, question.text || question.id),
      " ",
      h("small", {}, question.id),
      hasNowhere(question) && this.#tag("questions.quote_nowhere", "tag-bad"),
      hasError(question) && this.#tag("questions.call_failed", "tag-bad"),
    );
  }

  #tag(key, style) {
    return this.#h("span", { class: `tag ${style}`, t: key });
  }

  #compare(first, second) {
    if (first === second) return 0;
    if (first === null) return 1;
    if (second === null) return -1;
    const order = typeof first === "string" ? first.localeCompare(second) : first - second;
    return this.#isDescending ? -order : order;
  }

  #includesWords(question) {
    if (!this.#words) return true;
    const answers = Object.values(question.systems).map(({ answer }) => answer?.text ?? "");
    return [question.id, question.text, question.reference, ...answers]
      .join("\n")
      .toLowerCase()
      .includes(this.#words);
  }

  #shownQuestions() {
    const includes = this.#choices[this.#choice][1];
    const { value } = this.#columns[this.#column];
    return this.#data.questions
      .filter((question) => includes(question) && this.#includesWords(question))
      .filter(({ kinds }) => !this.#kind || kinds[this.#kind[0]] === this.#kind[1])
      .sort((a, b) => this.#compare(value(a), value(b)));
  }

  /** Fills the table with the first `rows` of the questions that the filters include. */
  #show(rows = PAGE_ROWS) {
    const h = this.#h;
    const questions = this.#shownQuestions();
    const shown = questions.slice(0, rows).map((question) => this.#row(question));
    this.#body.replaceChildren(...shown);
    const direction = this.#isDescending ? "descending" : "ascending";
    this.#heads.forEach((head, index) =>
      head.setAttribute("aria-sort", index === this.#column ? direction : "none"),
    );
    const counts = { shown: questions.length, n: this.#data.questions.length };
    this.#count.replaceChildren(h("span", { t: ["questions.count", counts] }));
    const more = Math.min(PAGE_ROWS, questions.length - rows);
    this.#more.hidden = more <= 0;
    this.#more.onclick = () => this.#show(rows + PAGE_ROWS);
    this.#more.replaceChildren(h("span", { t: ["questions.more", { n: more }] }));
  }

  #row(question) {
    const cells = this.#columns.map(({ cell }) => cell(question));
    const row = this.#h("tr", { class: "question-row" }, cells);
    const button = row.querySelector("button");
    button.onclick = () => this.#toggle(button, row, question);
    return row;
  }

  #toggle(button, row, question) {
    const isOpen = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) {
      row.nextSibling.remove();
      return;
    }
    const cell = this.#h("td", { colspan: this.#columns.length }, this.#detail(question));
    row.after(this.#h("tr", { class: "detail-row" }, cell));
    for (const text of cell.querySelectorAll(".found-text")) showGold(text);
  }

  #detail(question) {
    const h = this.#h;
    const kinds = Object.entries(question.kinds).map(([trait, value]) => `${trait}: ${value}`);
    const judged = Object.keys(question.verdicts);
    const compared = judged.map((name) => this.#verdictPart(question, name));
    const systems = Object.keys(question.systems).map((name) => this.#system(question, name));
    return h(
      "div",
      { class: "detail" },
      this.#gold(question),
      compared,
      h("div", { class: "compared" }, systems),
      h("p", { class: "question-note" }, kinds.join(" · ")),
    );
  }

  #gold({ gold, reference }) {
    const h = this.#h;
    const piece = ({ text, document: name, nowhere }) =>
      h(
        "li",
        {},
        text && h("mark", {}, text),
        " ",
        name && h("small", { t: [text ? IN_DOCUMENT : WHOLE_DOCUMENT, { document: name }] }),
        nowhere && this.#tag("questions.quote_nowhere", "tag-bad"),
      );
    return [
      gold.length > 0 && [
        h("h4", { t: "questions.right" }),
        h("ul", { class: "gold" }, gold.map(piece)),
      ],
      reference && [
        h("h4", { t: "questions.reference" }),
        h("p", { class: "plain-text" }, reference),
      ],
    ];
  }

  #verdictPart(question, name) {
    const h = this.#h;
    const { outcomes, reasons, error } = question.verdicts[name];
    const { baseline } = this.#data;
    if (error) return h("p", { class: "warning", t: ["questions.judge_failed", { error }] });
    const shown = Object.keys(CRITERIA)
      .filter((criterion) => criterion in outcomes)
      .map((criterion) => [
        h("dt", { t: CRITERIA[criterion] }),
        h("dd", {}, this.#winner(outcomes[criterion], name)),
      ]);
    const orders = [
      { first: name, second: baseline },
      { first: baseline, second: name },
    ];
    const reason = (text, index) =>
      h(
        "p",
        { class: "reason" },
        text || h("span", { t: "questions.no_reason" }),
        " ",
        h("small", { t: ["questions.order", orders[index % 2]] }),
      );
    return h(
      "div",
      { class: "verdict" },
      h("h4", { t: ["questions.verdict", { system: name, baseline }] }),
      h("dl", {}, shown),
      reasons.length
        ? reasons.map(reason)
        : h("p", { class: "question-note", t: "questions.identical" }),
    );
  }

  #system(question, name) {
    const h = this.#h;
    const system = question.systems[name];
    const { recall, tokens, ms, passages, error, answer, isAnswered } = system;
    const found = ["questions.recall", { share: percent(recall), n: tokens }];
    const title = isAnswered ? "questions.answer_passages" : "questions.passages";
    const search = { view: "search", q: question.text };
    return h(
      "section",
      { class: "compared-system" },
      h("h3", {}, name),
      h(
        "p",
        { class: "question-note" },
        joined([recall !== null && h("span", { t: found }), ms > 0 && duration(ms)]),
        " ",
        this.#link("questions.search", search, name),
      ),
      error && h("p", { class: "warning" }, error),
      answer && this.#answer(answer),
      h("h4", { t: [title, { n: passages.length }] }),
      h(
        "ol",
        { class: "found-passages" },
        passages.map((passage, index) =>
          this.#passage(passage, index + 1, name, answer?.citations ?? []),
        ),
      ),
    );
  }

  #answer({ text, error, citations, read, written, ms }) {
    const h = this.#h;
    const numbers = citations.map((number) => `[${number}]`).join(" ");
    const facts = [
      read > 0 && h("span", { t: ["questions.read", { n: read }] }),
      written > 0 && h("span", { t: ["questions.written", { n: written }] }),
      ms > 0 && duration(ms),
      numbers && h("span", { t: ["questions.cites", { numbers }] }),
    ];
    return h(
      "div",
      {},
      h("h4", { t: "questions.answer" }),
      error
        ? h("p", { class: "plain-text", t: ["questions.answer_failed", { error }] })
        : h("p", { class: "plain-text" }, text),
      h("p", { class: "question-note" }, joined(facts)),
    );
  }

  #passage(passage, number, system, citations) {
    const h = this.#h;
    const { heading, right, parts, document: doc, chunk } = passage;
    const hasGold = right || parts.length > 1;
    const gold = right ? "questions.expected_document" : "questions.gold";
    return h(
      "li",
      { class: hasGold ? "found-passage has-gold" : "found-passage" },
      h(
        "p",
        { class: "found-heading" },
        h("b", {}, `[${number}] `),
        heading,
        " ",
        hasGold && this.#tag(gold, "tag-good"),
        citations.includes(number) && this.#tag("questions.cited", "tag-cited"),
        " ",
        this.#link("questions.open", { view: "documents", doc, chunk }, system),
      ),
      this.#markedText(passage),
    );
  }

  /** Returns the passage's text, with the gold marked. */
  #markedText({ parts, cutStart, cutEnd }) {
    const h = this.#h;
    const nodes = parts.map((part, index) => (index % 2 ? h("mark", {}, part) : part));
    // A long passage scrolls, so the keyboard must reach it.
    const attributes = { class: "found-text", tabindex: 0 };
    return h("p", attributes, cutStart && "… ", nodes, cutEnd && " …");
  }

  #filters() {
    const h = this.#h;
    const words = h("input", { type: "search" });
    words.oninput = () => {
      this.#words = words.value.trim().toLowerCase();
      this.#show();
    };
    const options = this.#choices.map(([text], index) => h("option", { value: index, t: text }));
    const choice = h("select", {}, options);
    choice.oninput = () => {
      this.#choice = Number(choice.value);
      this.#show();
    };
    const kind = h("select", {}, this.#kindOptions());
    kind.oninput = () => {
      this.#kind = kind.value ? JSON.parse(kind.value) : null;
      this.#show();
    };
    return h(
      "div",
      { class: "question-filters" },
      this.#labelled("questions.words", words),
      this.#labelled("questions.outcome", choice),
      this.#labelled("questions.kind", kind),
    );
  }

  #labelled(key, control) {
    return this.#h("label", {}, this.#h("span", { t: key }), control);
  }

  #kindOptions() {
    const h = this.#h;
    const values = new Map();
    for (const { kinds } of this.#data.questions) {
      for (const [trait, value] of Object.entries(kinds)) {
        if (!values.has(trait)) values.set(trait, new Set());
        values.get(trait).add(value);
      }
    }
    const option = (trait, name) => h("option", { value: JSON.stringify([trait, name]) }, name);
    const groups = [...values].map(([trait, names]) => {
      const options = [...names].sort().map((name) => option(trait, name));
      return h("optgroup", { label: trait }, options);
    });
    return [h("option", { value: "", t: "questions.every_kind" }), groups];
  }
}

/** Returns the nodes and texts with a dot between them; those that are false are left out. */
function joined(parts) {
  const shown = parts.filter(Boolean);
  return shown.flatMap((part, index) => (index ? [" · ", part] : [part]));
}

function percent(share) {
  return share === null ? "–" : (100 * share).toFixed(0);
}

function signed(share) {
  return share === null ? "–" : `${share > 0 ? "+" : ""}${(100 * share).toFixed(0)}`;
}

function sign(value) {
  return value > 0 ? "better" : value < 0 ? "worse" : "";
}

function duration(ms) {
  return ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`;
}

function recallOf(question, system) {
  return question.systems[system]?.recall ?? null;
}

function hasNowhere(question) {
  return question.gold.some(({ nowhere }) => nowhere);
}

function hasError(question) {
  const failed = Object.values(question.systems).some((one) => one.error || one.answer?.error);
  return failed || Object.values(question.verdicts).some(({ error }) => error);
}

/** Scrolls the text of a long passage to its first gold. */
function showGold(text) {
  const gold = text.querySelector("mark");
  if (gold) text.scrollTop = gold.offsetTop - text.clientHeight / 2;
}
