// Shows a page of a PDF or of a picture in a dialog, with a sentence and its passage marked on it.
//
// The image is drawn on a canvas, and only if its bytes are a PNG. So the page's content security
// policy can forbid all images but the page's own files.

import { CallError, call } from "./connect.js";
import { button, data, h, newId, tr } from "./dom.js";
import { whole } from "./format.js";
import { errorBox, loading } from "./notices.js";
import { bindText, translate } from "./translation.js";

const SHOWN_TYPES = ["application/pdf", "image/png", "image/jpeg", "image/tiff"];
const PNG_SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const DOCUMENTS_READ = 1000; // The largest page of ListDocuments. A search returns fewer documents.

const ZOOMS = [1, 1.5, 2, 3];
// On a narrow screen, a page that is as wide as the dialog is too small to read.
const NARROW = "(max-width: 40rem)";
const NARROW_ZOOM = 2; // An index in ZOOMS.
const [MIN_DPI, DEFAULT_DPI, MAX_DPI] = [36, 110, 300]; // The limits of GetPageImage.
// At the zoom 1 a page is as wide as the dialog, but a small page is not much enlarged.
const MAX_PIXELS_PER_POINT = 1.6;

/** Returns true if the pages of a document, a DocumentInfo, can be shown. */
export function hasPages({ mimeType, originalBytes }) {
  return SHOWN_TYPES.includes(mimeType) && whole(originalBytes) > 0;
}

/**
 * Returns those documents of passages whose pages can be shown, as a map from their ids to their
 * DocumentInfos. If they cannot be read, the map is empty, because a search is useful without them.
 */
export async function documentsWithPages(session, passages) {
  const paged = passages.filter(({ chunk }) => isPaged(chunk));
  if (!session.chosen?.settings?.keepOriginals || !paged.length) return new Map();
  const ids = [...new Set(paged.map(({ chunk }) => chunk.documentId))];
  const values = ids.map((text) => ({ text }));
  const filter = { match: { field: "document_id", values } };
  const request = { ...session.scope, filter, pageSize: DOCUMENTS_READ };
  try {
    const { documents = [] } = await call("IndexerService/ListDocuments", request);
    return new Map(documents.filter(hasPages).map((info) => [info.documentId, info]));
  } catch (error) {
    if (error instanceof CallError) return new Map();
    throw error;
  }
}

function isPaged({ firstPage, pageUnit = "PAGE_UNIT_PAGE" }) {
  return Boolean(firstPage) && pageUnit === "PAGE_UNIT_PAGE";
}

/** Returns the number of the page of a chunk that contains an offset of the document's text. */
export function pageAt({ firstPage, pageStarts = [] }, offset) {
  return pageStarts.findLast(({ charStart = 0 }) => charStart <= offset)?.number ?? firstPage;
}

/**
 * Returns a button that opens a page. `info` is the DocumentInfo of a document whose pages can be
 * shown. `marks` are marks in the form of `marked_text.js`: one of the kind `passage`, and perhaps
 * one of the kind `cited`, for the sentence.
 */
export function pageButton(scope, info, page, marks) {
  const open = () => new PageDialog(scope, info, page, marks).open();
  return button(["page.show", { page }], open, { class: "quiet-button page-button" });
}

class PageDialog {
  #scope;
  #info;
  #page;
  #marks;
  #zoom = matchMedia(NARROW).matches ? NARROW_ZOOM : 0; // An index in ZOOMS.
  #running = new AbortController();
  #opener = document.activeElement;
  #place = h("span", { class: "page-number" });
  #percent = h("span", { class: "page-number" });
  #status = h("p", { class: "meta", role: "status" });
  #note = h("p", { class: "meta" }); // Why text has no boxes, as the server says it.
  #sheet = h("div", { class: "page-sheet" });
  #stage = h("div", { class: "page-stage", tabindex: "0", role: "region", tLabel: "page.region" });
  #previous = this.#control("page.previous", "‹", () => this.#turn(-1));
  #next = this.#control("page.next", "›", () => this.#turn(1));
  #smaller = this.#control("page.smaller", "−", () => this.#zoomBy(-1));
  #larger = this.#control("page.larger", "+", () => this.#zoomBy(1));
  #dialog;

  constructor(scope, info, page, marks) {
    this.#scope = scope;
    this.#info = info;
    this.#page = page;
    this.#marks = apart(marks);
    const heading = newId("page");
    this.#dialog = h(
      "dialog",
      { class: "page-dialog", "aria-labelledby": heading, onclose: () => this.#end() },
      h(
        "header",
        { class: "page-head" },
        h("h2", { id: heading }, data(this.#title)),
        button("page.close", () => this.#dialog.close(), { class: "quiet-button" }),
      ),
      h(
        "div",
        { class: "page-tools" },
        h("div", { role: "group", tLabel: "page.turn" }, this.#previous, this.#place, this.#next),
        h("div", { role: "group", tLabel: "page.zoom" }, this.#smaller, this.#percent, this.#larger),
        this.#legend(),
      ),
      this.#stage,
      this.#status,
      this.#note,
    );
  }

  open() {
    document.body.append(this.#dialog);
    this.#dialog.showModal();
    this.#stage.focus();
    this.#stage.replaceChildren(loading());
    this.#show();
  }

  get #title() {
    return this.#info.title || this.#info.documentId;
  }

  /** Returns a button that stays in place, and keeps the focus, when it can do nothing. */
  #control(label, sign, act) {
    const press = (event) => event.currentTarget.ariaDisabled !== "true" && act();
    return h("button", { type: "button", class: "icon-button", tLabel: label, onclick: press }, sign);
  }

  #legend() {
    const kinds = new Set(this.#marks.map(({ kind }) => kind));
    const item = (kind) =>
      h("li", {}, h("span", { class: `page-sample tint-${kind}` }), tr(`page_mark.${kind}`));
    return h("ul", { class: "page-legend" }, [...kinds].map(item));
  }

  #turn(step) {
    this.#page += step;
    this.#show();
  }

  /** Changes the size of the sheet at once, then its resolution. What is in the middle stays there. */
  #zoomBy(step) {
    const stage = this.#stage;
    const middle = (start, size, all) => (start + size / 2) / all;
    const x = middle(stage.scrollLeft, stage.clientWidth, stage.scrollWidth);
    const y = middle(stage.scrollTop, stage.clientHeight, stage.scrollHeight);
    this.#zoom += step;
    this.#sheet.style.setProperty("--zoom", ZOOMS[this.#zoom]);
    stage.scrollLeft = x * stage.scrollWidth - stage.clientWidth / 2;
    stage.scrollTop = y * stage.scrollHeight - stage.clientHeight / 2;
    this.#show({ isSamePage: true });
  }

  /** Reads the page's image and shows it. Until then, the image before it stays. */
  async #show({ isSamePage = false } = {}) {
    this.#running.abort();
    this.#running = new AbortController();
    const { signal } = this.#running;
    this.#paintTools();
    this.#stage.setAttribute("aria-busy", "true");
    try {
      const image = await this.#read(this.#dpi, signal);
      const canvas = await drawn(image.png ?? "");
      if (!signal.aborted) this.#paint(image, canvas, isSamePage);
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    }
  }

  #paintTools() {
    const last = whole(this.#info.pageCount);
    setDisabled(this.#previous, this.#page <= 1);
    setDisabled(this.#next, this.#page >= last);
    setDisabled(this.#smaller, this.#zoom === 0);
    setDisabled(this.#larger, this.#zoom === ZOOMS.length - 1);
    bindText(this.#place, "", "page.of", { page: this.#page, last });
    bindText(this.#percent, "", "page.percent", { percent: 100 * ZOOMS[this.#zoom] });
  }

  get #dpi() {
    const dots = DEFAULT_DPI * ZOOMS[this.#zoom] * Math.min(devicePixelRatio, 2);
    return Math.min(MAX_DPI, Math.max(MIN_DPI, Math.round(dots)));
  }

  /** Reads the image; of a page that is too large for the resolution, a coarser image. */
  async #read(dpi, signal) {
    const spans = this.#marks.map(({ start, end }) => ({ charStart: start, charEnd: end }));
    const { documentId } = this.#info;
    const request = { ...this.#scope, documentId, page: this.#page, dpi, spans };
    try {
      return await call("IndexerService/GetPageImage", request, signal);
    } catch (error) {
      if (error.field !== "dpi" || dpi === MIN_DPI) throw error;
      return this.#read(Math.max(MIN_DPI, Math.floor(dpi / 2)), signal);
    }
  }

  #paint({ widthPoints, boxes = [], boxesNote = "" }, canvas, isSamePage) {
    const label = translate("page.image", { page: this.#page, title: this.#title });
    canvas.setAttribute("aria-label", label);
    const kinds = boxes.map(({ span = 0 }) => this.#marks[span].kind);
    const places = boxes.map((box, at) => placed(box, kinds[at]));
    this.#sheet.style.setProperty("--width", `${widthPoints * MAX_PIXELS_PER_POINT}px`);
    this.#sheet.style.setProperty("--zoom", ZOOMS[this.#zoom]);
    this.#sheet.replaceChildren(canvas, ...places);
    if (this.#sheet.parentElement !== this.#stage) this.#stage.replaceChildren(this.#sheet);
    this.#stage.setAttribute("aria-busy", "false");
    const cited = places.filter(isCited);
    if (!isSamePage) this.#scrollTo(cited.length ? cited : places);
    bindText(this.#status, "", ...statusText(kinds, this.#marks));
    this.#note.replaceChildren(data(boxesNote));
  }

  /** Scrolls to the first of the boxes; without one, to the beginning of the page. */
  #scrollTo(boxes) {
    const { clientWidth, clientHeight } = this.#stage;
    const left = Math.min(...boxes.map((box) => box.offsetLeft)) - clientWidth / 20;
    const top = boxes[0]?.offsetTop - clientHeight / 3;
    this.#stage.scrollTo(boxes.length ? { left, top } : { left: 0, top: 0 });
  }

  #fail(error) {
    this.#stage.setAttribute("aria-busy", "false");
    this.#stage.replaceChildren(errorBox(error, () => this.#show()));
    this.#status.replaceChildren();
    this.#note.replaceChildren();
  }

  #end() {
    this.#running.abort();
    this.#dialog.remove();
    this.#opener?.focus();
  }
}

/** Returns marks that do not overlap: the sentence, and what is before and after it in the passage. */
function apart(marks) {
  const passage = marks.find(({ kind }) => kind === "passage");
  const cited = marks.find(({ kind, start, end }) => kind === "cited" && start < end);
  const { start, end } = cited ?? { start: passage.end, end: passage.end };
  const parts = [
    { ...passage, end: Math.min(passage.end, start) },
    { ...passage, start: Math.max(passage.start, end) },
  ];
  return [cited, ...parts].filter((mark) => mark && mark.start < mark.end);
}

function setDisabled(control, isDisabled) {
  control.setAttribute("aria-disabled", String(isDisabled));
}

/** Returns the key of a text, and its values, that says what is marked on the page. */
function statusText(kinds, marks) {
  const isExpected = marks.some(({ kind }) => kind === "cited");
  const cited = kinds.filter((kind) => kind === "cited").length;
  if (cited) return ["page.cited_lines", { n: cited }];
  if (kinds.length) return [isExpected ? "page.only_passage" : "page.passage_lines", { n: kinds.length }];
  return ["page.nothing", {}];
}

/** Returns a canvas with an image, whose bytes are in Base64. Raises CallError if it is no PNG. */
async function drawn(base64) {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  if (!PNG_SIGNATURE.every((byte, at) => bytes[at] === byte))
    throw new CallError({ code: "unexpected", message: translate("page.no_png") });
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const { width, height } = bitmap;
  const canvas = h("canvas", { width, height, role: "img" });
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  bitmap.close();
  return canvas;
}

function placed({ left = 0, top = 0, right = 0, bottom = 0 }, kind) {
  const box = h("div", { class: `page-box tint-${kind}` });
  const sides = { left, top, width: right - left, height: bottom - top };
  for (const [side, share] of Object.entries(sides)) box.style[side] = `${100 * share}%`;
  return box;
}

function isCited(box) {
  return box.classList.contains("tint-cited");
}
