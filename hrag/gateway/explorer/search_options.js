// The options of a search, with their names in SearchRequest, and the modes and retrievals that
// each option applies to. Limits that the server may change are not repeated here: the server's
// error names them.

const CHUNK_MODES = ["SMALL_TO_BIG", "SUMMARY_FIRST", "AUTO_MERGE"];
const UNJOINED_MODES = [...CHUNK_MODES, "STANDARD"];

export const MODES = [
  "SMALL_TO_BIG",
  "CONTEXT",
  "AUTO_MERGE",
  "STANDARD",
  "SENTENCE_WINDOW",
  "SUMMARY_FIRST",
];

/**
 * The options that are always visible. If an option is an enum of the protocol, `enum` is the
 * prefix of the names of its values, and `values` are the names without this prefix. The first
 * value is the default; a default is not sent, except for the mode. An option with `values` but
 * without `enum` is a boolean whose default depends on the server. `modes` and `retrievals` list
 * the modes and the retrievals that the option applies to; an option without these lists always
 * applies.
 */
export const MAIN_OPTIONS = [
  { name: "mode", enum: "SEARCH_MODE_", values: MODES },
  { name: "retrieval", enum: "RETRIEVAL_", values: ["", "HYBRID", "DENSE", "LEXICAL"] },
  { name: "limit", min: 1, step: 1 },
  { name: "tokenBudget", min: 0, step: 1 },
];

/** The options below "More options", in the form of `MAIN_OPTIONS`. */
export const MORE_OPTIONS = [
  { name: "returnLevel", min: 0, step: 1, modes: CHUNK_MODES },
  { name: "mergeRatio", min: 0, max: 1, step: "any", modes: ["AUTO_MERGE"] },
  { name: "windowSentences", min: 0, step: 1, modes: ["SENTENCE_WINDOW"] },
  { name: "topSections", min: 1, step: 1, modes: ["SUMMARY_FIRST"] },
  {
    name: "summaryScope",
    enum: "SUMMARY_SCOPE_",
    values: ["SECTIONS", "DOCUMENTS"],
    modes: ["SUMMARY_FIRST"],
  },
  { name: "lexicalWeight", min: 0, max: 1, step: "any", retrievals: ["HYBRID"] },
  {
    name: "fusion",
    enum: "FUSION_METHOD_",
    values: ["CONVEX", "RECIPROCAL_RANK"],
    retrievals: ["HYBRID"],
  },
  { name: "candidates", min: 1, step: 1 },
  { name: "aggregation", enum: "AGGREGATION_", values: ["MAX", "SUM", "MEAN", "COUNT"] },
  { name: "minScore", step: "any" },
  { name: "maxPerDocument", min: 0, step: 1 },
  { name: "neighbourBonus", min: 0, max: 1, step: "any" },
  { name: "mergeAdjacent", flag: true, modes: UNJOINED_MODES },
  { name: "keepOverlap", flag: true, modes: UNJOINED_MODES },
  { name: "cutLast", flag: true },
  { name: "rerank", values: ["", "true", "false"], modes: [...UNJOINED_MODES, "CONTEXT"] },
  { name: "minSequence", min: 0, step: 1 },
];

/** Returns true if an option applies to a mode and a retrieval. */
export function applies(option, mode, retrieval) {
  return (
    (option.modes?.includes(mode) ?? true) &&
    (option.retrievals?.includes(retrieval || "HYBRID") ?? true)
  );
}

/** Returns the fields of a SearchRequest; `options` has the text or flag of each option by name. */
export function requestOptions(options) {
  const request = {};
  for (const option of [...MAIN_OPTIONS, ...MORE_OPTIONS]) {
    const value = options[option.name];
    if (value === undefined || value === "" || value === false) continue;
    if (!applies(option, options.mode, options.retrieval)) continue;
    if (option.enum && value === option.values[0] && option.name !== "mode") continue;
    if (option.enum) request[option.name] = option.enum + value;
    else if (option.values) request[option.name] = value === "true";
    else request[option.name] = option.flag ? true : Number(value);
  }
  return request;
}
