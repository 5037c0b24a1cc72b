// Shows the settings of the server and of the chosen collection.

import { call } from "./connect.js";
import { data, facts, h, tr } from "./dom.js";
import { count, size } from "./format.js";
import { guides } from "./guides.js";
import { fill } from "./notices.js";

const IN_BYTES = /Bytes$/;

export class ServerView {
  #session;
  #server = h("div", {});
  #collection = h("div", {});

  constructor(session) {
    this.#session = session;
    this.element = h("div", { class: "view server-view" }, this.#server, this.#collection);
    for (const name of ["change", "refresh"]) {
      session.addEventListener(name, () => this.#showCollection());
    }
    // Another key may see other settings.
    session.addEventListener("change", () => {
      if (this.element.closest("[role=tabpanel]:not([hidden])")) this.show();
    });
    this.#showCollection();
  }

  /** Reads the server's settings again; called when the view is shown. */
  show() {
    fill(this.#server, async () => serverParts(await call("RetrieverService/GetServerInfo", {})));
  }

  #showCollection() {
    const { chosen } = this.#session;
    this.#collection.replaceChildren(
      ...(chosen ? [collectionCard(chosen)] : []),
      guides(),
    );
  }
}

function section(title, ...content) {
  return h("section", { class: "card" }, h("h2", { t: title }), content);
}

function collectionCard(collection) {
  const title = h("h2", {}, tr("server.collection"), " ", data(collection.name));
  return h("section", { class: "card" }, title, collectionFacts(collection));
}

function serverParts(info) {
  const limits = Object.entries(info.limits ?? {}).map(([name, value]) => [
    `limit.${name}`,
    IN_BYTES.test(name) ? size(value) : count(value),
  ]);
  const { lagS = 0, embedded } = info.reader ?? {};
  const reader = [
    ["reader.lag", `${lagS.toFixed(1)} s`],
    ...(embedded ? readerFacts(embedded) : []),
  ];
  return [
    section(
      "server.settings",
      facts([
        ["server.version", info.version ?? ""],
        ["server.role", info.role ? h("code", {}, data(info.role)) : tr("server.none")],
        ["server.embedder", h("code", {}, data(info.embedder ?? ""))],
        [
          "server.chat_model",
          info.chatModel ? h("code", {}, data(info.chatModel)) : tr("server.none"),
        ],
        ["server.return_level", String(info.returnLevel ?? 0)],
        ["server.default_limit", count(info.defaultLimit)],
        ["server.default_candidates", count(info.defaultCandidates)],
      ]),
    ),
    section("server.limits", facts(limits)),
    info.reader ? section("server.reader", facts(reader)) : null,
  ].filter(Boolean);
}

function readerFacts(embedded) {
  return [
    ["reader.sequence", `${embedded.appliedSequence ?? 0} / ${embedded.sequence ?? 0}`],
    ["reader.collections", count(embedded.collectionsLoaded)],
    ["reader.memory", `${size(embedded.loadedBytes)} / ${size(embedded.budgetBytes)}`],
    ["reader.damaged", count(embedded.damagedSegments)],
  ];
}

export function collectionFacts({ documentCount, settings }) {
  const summaries = (settings.summaries ?? "SUMMARY_UNIT_UNSPECIFIED").slice(
    "SUMMARY_UNIT_".length,
  );
  return facts([
    ["status.documents", count(documentCount)],
    ["server.levels", (settings.levelSizes ?? []).map(count).join(" / ")],
    ["server.overlap", String(settings.overlapRatio ?? 0)],
    ["server.embedding_level", String(settings.embeddingLevel ?? 0)],
    [
      "server.return_level",
      settings.returnLevel === undefined ? tr("option.default") : String(settings.returnLevel),
    ],
    ["server.embedder", h("code", {}, data(settings.embedder ?? ""))],
    ["server.dimension", count(settings.dimension)],
    ["server.summaries", h("code", {}, summaries)],
    [
      "server.analyzer",
      settings.analyzer ? h("code", {}, data(settings.analyzer)) : tr("server.none"),
    ],
    ["server.headings", tr(settings.indexHeadings ? "plan.yes" : "plan.no")],
    ["server.originals", tr(settings.keepOriginals ? "plan.yes" : "plan.no")],
  ]);
}
