// The dialog in which a collection is created. An option that is left empty gets the default of the
// indexer.

import { openDialog } from "./action_dialog.js";
import { CallError, call } from "./connect.js";
import { field, h, tr } from "./dom.js";
import { translate } from "./translation.js";

const FLAG = ["", "true", "false"];
const SUMMARY_UNITS = ["", "NONE", "CHUNK", "PAGE", "SECTION"];

/** Opens the dialog. `onCreated` is called with the name of the new collection. */
export function openCollectionForm(tenantId, onCreated) {
  const name = textInput({ required: true, autofocus: true });
  const levels = textInput({ tPlaceholder: "option.default", inputmode: "numeric" });
  const overlap = numberInput("any");
  const embedded = numberInput(1);
  const returned = numberInput(1);
  const embedder = textInput({ tPlaceholder: "option.default" });
  const analyzer = textInput({ tPlaceholder: "option.default" });
  const summaries = selectInput(SUMMARY_UNITS);
  const headings = selectInput(FLAG);
  const originals = selectInput(FLAG);
  const settings = () => ({
    levelSizes: levelSizes(levels.value),
    overlapRatio: numberIn(overlap),
    embeddingLevel: numberIn(embedded),
    returnLevel: numberIn(returned),
    embedder: embedder.value.trim() || undefined,
    analyzer: analyzer.value.trim() || undefined,
    summaries: summaries.value ? `SUMMARY_UNIT_${summaries.value}` : undefined,
    indexHeadings: flagIn(headings),
    keepOriginals: flagIn(originals),
  });
  openDialog({
    title: "collection.new",
    action: "collection.create",
    content: [
      h("p", {}, tr("collection.new_text")),
      field("server.name", name),
      h(
        "div",
        { class: "option-grid" },
        field("server.levels", levels, h("p", { class: "hint", t: "collection.levels_hint" })),
        field("server.embedder", embedder, h("p", { class: "hint", t: "collection.embedder_hint" })),
        field("server.analyzer", analyzer, h("p", { class: "hint", t: "collection.analyzer_hint" })),
        field("server.summaries", summaries),
        field("server.overlap", overlap),
        field("server.embedding_level", embedded),
        field("server.return_level", returned),
        field("server.headings", headings),
        field("server.originals", originals),
      ),
    ],
    run: async () => {
      const request = { tenantId, name: name.value.trim(), settings: settings() };
      await call("IndexerService/CreateCollection", request);
      await onCreated(request.name);
    },
  });
}

/** Returns the sizes in a text such as `256, 512`. Raises CallError if one is not a number. */
function levelSizes(text) {
  const sizes = text.split(/[\s,，、/]+/).filter(Boolean);
  if (sizes.every((size) => /^\d{1,9}$/.test(size))) return sizes.map(Number);
  throw new CallError({
    code: "invalid_argument",
    message: translate("collection.malformed_levels", { text }),
  });
}

function textInput(attributes) {
  return h("input", {
    type: "text",
    class: "mono",
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "none",
    ...attributes,
  });
}

function numberInput(step) {
  return h("input", { type: "number", min: 0, step, tPlaceholder: "option.default" });
}

function numberIn(input) {
  return input.value === "" ? undefined : Number(input.value);
}

function flagIn(select) {
  return select.value ? select.value === "true" : undefined;
}

function selectInput(values) {
  return h(
    "select",
    { class: "mono" },
    values.map((value) => h("option", value ? { value } : { value, t: "option.default" }, value)),
  );
}
