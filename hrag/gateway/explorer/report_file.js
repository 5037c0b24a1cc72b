// Reads a JSON report, which `hrag eval --json` or `hrag compare` has written, from a file.
//
// The file is untrusted. Only what the page shows is kept, and each of these values must have its
// type. Objects whose keys come from the file have no prototype, so that a key such as
// `constructor` is only a key.

import { CallError } from "./connect.js";
import { size } from "./format.js";
import { MAIN_OPTIONS, MORE_OPTIONS } from "./search_options.js";
import { utf16Offsets } from "./text_offsets.js";
import { translate } from "./translation.js";

// A report of 2,000 questions in two systems has at most 64 MB; the browser must hold it twice.
const MAX_REPORT_BYTES = 128 << 20;
// The version of reports that this page knows, `VERSION` of `hrag.evaluation.summary`.
const VERSION = 1;
// Each system is a column of the table, and a row of the scoreboard.
const MAX_SYSTEMS = 24;
// A report of MAX_SYSTEMS systems has some dozens of sentences, warnings and facts.
const MAX_ENTRIES = 200;
// Longer texts of questions and answers are cut, as in the HTML report.
const MAX_TEXT_CHARS = 4000;
const HTML = /^\s*<(!doctype|html)/i;
const MODE_CONTEXT = "context";

/**
 * Returns what the page shows of a report: `head` for the first screen, and `table` for
 * `QuestionTable`. Raises CallError if the file is too large or is no report of this version.
 */
export async function readReport(file) {
  if (file.size > MAX_REPORT_BYTES) {
    const sizes = { bytes: size(file.size), most: size(MAX_REPORT_BYTES) };
    throw refusal("evaluation.too_large", sizes);
  }
  const report = new Fields(parsed(await contentOf(file)), "");
  const version = report.number("version");
  if (version !== VERSION) throw refusal("evaluation.version", { version, known: VERSION });
  return { head: headOf(report), table: tableOf(report) };
}

async function contentOf(file) {
  try {
    return await file.text();
  } catch (error) {
    throw new CallError({ code: "unreadable", message: error.message });
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw refusal(HTML.test(text) ? "evaluation.html" : "evaluation.no_json");
  }
}

function refusal(key, values) {
  return new CallError({ code: "no_report", message: translate(key, values) });
}

/**
 * The fields of an object in the file. Each method returns a value of the field `name`, or raises
 * CallError with the field's place if the value is missing or has another type.
 */
class Fields {
  #value;
  #place;

  constructor(value, place) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw wrongType(place);
    this.#value = value;
    this.#place = place;
  }

  text(name) {
    return textOf(this.#value[name], this.#placeOf(name));
  }

  /** Returns the first MAX_TEXT_CHARS characters of a text. */
  shortText(name) {
    const text = this.text(name);
    if (text.length <= MAX_TEXT_CHARS) return text;
    return [...text.slice(0, 2 * MAX_TEXT_CHARS)].slice(0, MAX_TEXT_CHARS).join("");
  }

  number(name) {
    return numberOf(this.#value[name], this.#placeOf(name));
  }

  /** Returns null for null, else the result of `item`. */
  optional(name, item) {
    return this.#value[name] === null ? null : item(this.#value[name], this.#placeOf(name));
  }

  fields(name) {
    return new Fields(this.#value[name], this.#placeOf(name));
  }

  /** Returns the results of `item`, which is called with each value and its place. */
  list(name, item) {
    const values = this.#value[name];
    if (!Array.isArray(values)) throw wrongType(this.#placeOf(name));
    return values.map((value, index) => item(value, `${this.#placeOf(name)}[${index}]`));
  }

  /** Returns an object without a prototype, with the results of `item` by their keys. */
  dictionary(name, item) {
    const entries = Object.create(null);
    const { value, place } = this.fields(name);
    for (const [key, each] of Object.entries(value)) entries[key] = item(each, `${place}.${key}`);
    return entries;
  }

  get value() {
    return this.#value;
  }

  get place() {
    return this.#place;
  }

  #placeOf(name) {
    return this.#place ? `${this.#place}.${name}` : name;
  }
}

function wrongType(field) {
  return refusal("evaluation.no_report", { field: field || "version" });
}

function fieldsOf(value, place) {
  return new Fields(value, place);
}

function textOf(value, place) {
  if (typeof value !== "string") throw wrongType(place);
  return value;
}

/** Returns the text of an option, whose value is a text, a number, true or false. */
function optionOf(value, place) {
  if (typeof value === "object" || value === undefined) throw wrongType(place);
  return String(value);
}

function numberOf(value, place) {
  if (typeof value !== "number") throw wrongType(place);
  return value;
}

function textOrNumber(value, place) {
  return typeof value === "number" ? value : textOf(value, place);
}

function checkSystems(names) {
  if (names.length > MAX_SYSTEMS) {
    throw refusal("evaluation.too_many_systems", { n: names.length, most: MAX_SYSTEMS });
  }
}

/** Returns the entries. Raises CallError with the field's name if the page cannot show all. */
function bounded(field, entries) {
  if (entries.length > MAX_ENTRIES) {
    const values = { field, n: entries.length, most: MAX_ENTRIES };
    throw refusal("evaluation.too_many_entries", values);
  }
  return entries;
}

// The first screen.

function headOf(report) {
  const findings = report.fields("findings");
  const [figures, judge] = ["retrieval", "judged"].map((name) => report.optional(name, fieldsOf));
  const systems = figures?.list("systems", fieldsOf) ?? [];
  const pairs = judge?.list("pairs", fieldsOf) ?? [];
  const failures = [...systems, ...pairs].flatMap((each) => each.list("failures", fieldsOf));
  const judgeError = report.text("judge_error");
  const budget = figures ? mainBudget(figures) : 0;
  const scores = systems.map((system) => systemFigures(system, budget));
  const costs = judge?.list("costs", answerCost) ?? [];
  const kinds = findings.list("kinds", kindFinding);
  const named = [...scores, ...costs].map(({ name }) => name);
  checkSystems([...new Set([...named, ...kinds.map(({ better }) => better)])]);
  const warnings = [report, figures, judge].flatMap((each) => each?.list("warnings", textOf) ?? []);
  return {
    first: findings.text("first"),
    further: bounded("further", findings.list("further", textOf)),
    kinds,
    unclear: findings.list("unclear", kindFinding),
    tooFew: findings.number("too_few"),
    budget,
    systems: scores,
    costs,
    failedCalls: failures.length + (judgeError ? 1 : 0),
    warnings: bounded("warnings", warnings),
    judgeError,
    unstored: report.list("unstored", textOf),
    about: bounded("about", Object.entries(report.dictionary("about", textOrNumber))),
  };
}

/** Returns the middle one of the budgets, or the larger one of the two in the middle. */
function mainBudget(owner) {
  const budgets = owner.list("budgets", numberOf);
  return budgets[budgets.length >> 1] ?? 0;
}

function estimate(value, place) {
  const fields = new Fields(value, place);
  const [mean, low, high, questions] = ["mean", "low", "high", "questions"].map((name) =>
    fields.number(name),
  );
  return { mean, low, high, questions };
}

function kindFinding(value, place) {
  const fields = new Fields(value, place);
  return {
    better: fields.text("better"),
    trait: fields.text("trait"),
    value: fields.text("value"),
    difference: estimate(fields.value.difference, `${place}.difference`),
  };
}

function systemFigures(system, budget) {
  return {
    name: system.text("name"),
    recall: estimate(system.fields("estimates").value[`recall@${budget}`], "estimates"),
    tokens: system.fields("tokens").number(budget),
    timeUs: system.number("latency_p50_us"),
  };
}

function answerCost(value, place) {
  const cost = new Fields(value, place);
  return {
    name: cost.text("system"),
    tokens: cost.number("prompt_tokens") + cost.number("completion_tokens"),
    timeUs: cost.number("took_p50_us"),
  };
}

// The table of questions, in the form of `page_data` of `hrag.evaluation.html_questions`.

function tableOf(report) {
  const questions = report.list("questions", question);
  const systems = [...new Set(questions.flatMap((each) => Object.keys(each.systems)))];
  checkSystems(systems);
  const { baseline = systems.at(-1) ?? "" } = report.dictionary("about", textOrNumber);
  return {
    systems,
    baseline: String(baseline),
    explorer: explorerOf(report),
    questions,
  };
}

/**
 * Returns what links need: the tenant, and the collection and the search of each system. The tenant
 * and the collections are empty if the searched collection was removed, as `hrag compare` does.
 */
function explorerOf(report) {
  const where = report.optional("where", fieldsOf);
  const budgets = where ?? report.optional("retrieval", fieldsOf);
  const [collections, searches] = [Object.create(null), Object.create(null)];
  for (const system of report.list("systems", fieldsOf)) {
    const name = system.text("name");
    const options = system.dictionary("options", optionOf);
    collections[name] = where ? (options.collection ?? where.text("collection")) : "";
    // Only searches have a mode; other tools have none.
    const mode = system.optional("mode", textOf);
    if (mode) searches[name] = searchFields(mode, options, budgets ? mainBudget(budgets) : 0);
  }
  checkSystems(Object.keys(collections));
  return { tenant: where?.text("tenant_id") ?? "", collections, searches };
}

/** Returns a system's options as fields of the page's address; unknown options are dropped. */
function searchFields(mode, options, budget) {
  const fields = { mode: mode.toUpperCase() };
  for (const [name, value] of Object.entries(options)) {
    const camelCase = name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
    const option = [...MAIN_OPTIONS, ...MORE_OPTIONS].find((each) => each.name === camelCase);
    if (option) fields[camelCase] = option.enum ? value.toUpperCase() : value;
  }
  return mode === MODE_CONTEXT ? { ...fields, tokenBudget: String(budget) } : fields;
}

function question(value, place) {
  const fields = new Fields(value, place);
  const gold = fields.list("gold", goldPiece);
  return {
    id: fields.text("question_id"),
    text: fields.shortText("text"),
    reference: fields.shortText("reference"),
    kinds: fields.dictionary("kinds", textOf),
    gold: gold.map(({ document, text, places, nowhere }) => ({
      document: document || (places[0]?.document ?? ""),
      text,
      nowhere,
    })),
    systems: fields.dictionary("systems", (each, at) => systemResult(new Fields(each, at), gold)),
    verdicts: fields.dictionary("verdicts", verdict),
  };
}

function goldPiece(value, place) {
  const fields = new Fields(value, place);
  return {
    document: fields.text("document_id"),
    text: fields.shortText("text"),
    places: fields.list("places", textSpan),
    nowhere: value.is_nowhere === true,
  };
}

function textSpan(value, place) {
  const [document, start, end] = Array.isArray(value) ? value : [];
  return {
    document: textOf(document, place),
    start: numberOf(start, place),
    end: numberOf(end, place),
  };
}

function systemResult(fields, gold) {
  const made = fields.optional("answer", fieldsOf);
  const places = gold.flatMap((piece) => piece.places);
  const documents = gold
    .filter((piece) => !piece.text && !piece.places.length)
    .map((piece) => piece.document);
  return {
    recall: fields.optional("recall", numberOf),
    tokens: fields.number("tokens"),
    ms: Math.round(fields.number("latency_us") / 100) / 10,
    error: fields.text("error") || fields.text("fallback"),
    answer: made && answerOf(made),
    isAnswered: made !== null && made.list("passages", fieldsOf).length > 0,
    passages: fields.list("passages", (each, at) =>
      passage(new Fields(each, at), places, documents),
    ),
  };
}

function answerOf(fields) {
  return {
    text: fields.shortText("text"),
    citations: fields.list("citations", numberOf),
    read: fields.number("prompt_tokens"),
    written: fields.number("completion_tokens"),
    ms: Math.round(fields.number("took_us") / 1000),
    error: fields.text("error"),
  };
}

function verdict(value, place) {
  const fields = new Fields(value, place);
  return {
    outcomes: fields.dictionary("outcomes", numberOf),
    reasons: fields.list("reasons", textOf),
    error: fields.text("error"),
  };
}

function passage(fields, places, documents) {
  const [text, document] = [fields.text("text"), fields.text("document_id")];
  const start = fields.number("char_start");
  return {
    heading: fields.text("heading"),
    document,
    chunk: fields.text("chunk_id"),
    // Only a question that is opened needs the parts.
    get parts() {
      return parts(text, start, places.filter((each) => each.document === document));
    },
    cutStart: false,
    cutEnd: false,
    right: documents.includes(document),
  };
}

/** Returns the passage's text in parts: text, gold, text, gold, and so on. A part may be empty. */
function parts(content, passageStart, places) {
  const offset = utf16Offsets(content);
  const shown = [];
  let at = 0;
  const ranges = places
    .map(({ start, end }) => [offset(start - passageStart), offset(end - passageStart)])
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  for (const [start, end] of ranges) {
    const from = Math.max(start, at);
    if (from >= end) continue;
    shown.push(content.slice(at, from), content.slice(from, end));
    at = end;
  }
  return [...shown, content.slice(at)];
}
