// What can be done with stored documents: delete them, change their metadata, save their text.

import { nameList, openDialog } from "./action_dialog.js";
import { CallError, call } from "./connect.js";
import { field, h } from "./dom.js";
import { whole } from "./format.js";
import { MetadataField } from "./metadata_field.js";
import { announce } from "./notices.js";
import { translate } from "./translation.js";

const MARKDOWN = "text/markdown";

/** Asks, and deletes documents of `scope`. `onDeleted` is called after the deletion. */
export function deleteDocuments(scope, infos, onDeleted) {
  const values = infos.map(({ documentId }) => ({ text: documentId }));
  openDialog({
    title: ["document.delete_title", { n: infos.length }],
    action: "document.delete",
    isDestructive: true,
    content: [
      h("p", { t: ["document.delete_text", { collection: scope.collection }] }),
      nameList(
        infos.map(({ title, documentId }) => (title ? `${title} (${documentId})` : documentId)),
      ),
    ],
    run: () => remove(scope, { match: { field: "document_id", values } }, onDeleted),
  });
}

/** Asks, and deletes all documents that pass a filter. `total` is how many these are now. */
export function deleteMatching(scope, filter, total, onDeleted) {
  openDialog({
    title: ["document.delete_title", { n: total }],
    action: "document.delete",
    isDestructive: true,
    typed: scope.collection,
    content: [h("p", { t: ["document.delete_matching_text", { collection: scope.collection }] })],
    run: () => remove(scope, filter, onDeleted),
  });
}

async function remove(scope, filter, onDeleted) {
  const { deletedCount } = await call("IndexerService/DeleteDocuments", { ...scope, filter });
  announce("document.deleted", { n: whole(deletedCount) });
  await onDeleted();
}

/**
 * Opens a dialog to change the source and the metadata of a document. The change fails if somebody
 * else has changed the document since `info` was read.
 */
export function editMetadata(scope, info, onChanged) {
  const metadata = new MetadataField(info.metadata);
  const source = h("input", { type: "text", class: "mono", spellcheck: "false" });
  source.value = info.source ?? "";
  openDialog({
    title: "document.edit_title",
    action: "action.save",
    content: [field("document.source", source), metadata.element],
    run: async () => {
      const request = {
        ...scope,
        documentId: info.documentId,
        metadata: metadata.value,
        replace: true,
        source: source.value === (info.source ?? "") ? undefined : source.value,
        expectedSequence: info.sequence,
      };
      const { document: changed } = await call("IndexerService/UpdateMetadata", request);
      announce("document.changed");
      onChanged(changed);
    },
  });
}

/** Reads the text of a document in parts, and lets the browser save it as a file. */
export async function downloadText(scope, { documentId, mimeType, sequence }) {
  const parts = [];
  let [start, total] = [0, 1];
  while (start < total) {
    const request = { ...scope, documentId, textRange: { start } };
    const { document: info, text = "", textEnd = 0 } = await call(
      "IndexerService/GetDocument",
      request,
    );
    total = whole(info.textBytes);
    if (info.sequence !== sequence || (textEnd <= start && total > start)) throw changed();
    parts.push(text);
    start = textEnd;
  }
  const extension = mimeType === MARKDOWN ? ".md" : ".txt";
  const name = documentId.replaceAll(":", "_");
  save(new Blob(parts, { type: "text/plain" }), name.endsWith(extension) ? name : name + extension);
}

function changed() {
  return new CallError({ code: "aborted", message: translate("document.was_changed") });
}

function save(blob, name) {
  const href = URL.createObjectURL(blob);
  h("a", { href, download: name }).click();
  URL.revokeObjectURL(href);
}
