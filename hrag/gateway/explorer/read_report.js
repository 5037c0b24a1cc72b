// Shows what was read of an uploaded file, and what was not.

import { data, h, tr } from "./dom.js";

const UTF_8 = "utf-8";
const RANGES_SHOWN = 10;

/** Returns nodes that show a `ReadReport`; none for a document that was not read again. */
export function reportNodes(report) {
  if (!report) return [];
  const { encoding, encodingGuessed, pageCount, sectionCount, tableCount } = report;
  const { recognisedPages = [], unreadPages = [], leftOut = [] } = report;
  return [
    h("span", { class: "meta" }, report.mimeType),
    pageCount && tr(pageKey(report.pageUnit), { n: pageCount }),
    sectionCount && tr("report.sections", { n: sectionCount }),
    tableCount && tr("report.tables", { n: tableCount }),
    encoding && encoding !== UTF_8 && tr("report.encoding", { encoding }),
    encodingGuessed && tr("report.guessed"),
    recognisedPages.length && tr("report.recognised", { pages: ranges(recognisedPages) }),
    unreadPages.length && tr("report.unread", { pages: ranges(unreadPages) }),
    report.advice && data(report.advice),
    ...leftOut.map(({ kind, partCount }) => tr(leftOutKey(kind), { n: partCount })),
  ].filter(Boolean);
}

function pageKey(unit) {
  if (unit === "PAGE_UNIT_ROW") return "report.rows";
  return unit === "PAGE_UNIT_SECOND" ? "report.cues" : "report.pages";
}

function leftOutKey(kind) {
  return `left_out.${kind.slice("LEFT_OUT_KIND_".length)}`;
}

/** Returns ascending numbers as ranges, for example "2, 5–7". */
function ranges(numbers) {
  const all = [];
  for (const number of numbers) {
    const last = all.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else all.push([number, number]);
  }
  const shown = all.slice(0, RANGES_SHOWN).map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`));
  return [...shown, ...(all.length > RANGES_SHOWN ? ["…"] : [])].join(", ");
}
