// Uploads the files that the user chooses or drops, one after the other. Each file has a row with
// its progress and its outcome. The files in an archive are uploaded after it, each with a row.

import { archiveMembers, isArchiveName } from "./archive.js";
import { CallError, ingest } from "./connect.js";
import { data, field, h, tr } from "./dom.js";
import { dropZone } from "./drop_zone.js";
import { size, whole } from "./format.js";
import { announce, errorBox } from "./notices.js";
import { MetadataField } from "./metadata_field.js";
import { reportNodes } from "./read_report.js";
import { needsRole, permits, roleNote } from "./roles.js";
import { serverInfo } from "./server_info.js";
import { translate } from "./translation.js";
import { documentId, hasKnownExtension } from "./upload_names.js";

const NAMES_SHOWN = 5;

export class UploadView {
  #session;
  #title = h("input", { type: "text", autocomplete: "off" });
  #metadata = new MetadataField();
  #failure = h("div", {});
  #target = h("p", { class: "hint" });
  #waiting = [];
  #isBusy = false;
  #rows = h("ul", { class: "uploads", tLabel: "upload.list" });

  constructor(session) {
    this.#session = session;
    const note = roleNote("write", "role.upload");
    const keys = { title: "upload.title", text: "upload.text", choose: "upload.choose" };
    const drop = dropZone(keys, (files) => this.#add(files), {
      multiple: true,
      isEnabled: () => permits("write"),
      control: (choose) => needsRole("write", choose, note),
      content: note,
    });
    const more = h(
      "details",
      { class: "fold upload-more" },
      h("summary", { t: "upload.more" }),
      field("upload.document_title", this.#title, h("p", { class: "hint", t: "upload.title_hint" })),
      this.#metadata.element,
    );
    const parts = [this.#target, drop, more, this.#failure, this.#rows];
    this.element = h("div", { class: "view upload-view" }, parts);
    session.addEventListener("change", () => this.#showTarget());
    this.#showTarget();
  }

  #showTarget() {
    const { tenant, collection } = this.#session;
    this.#target.replaceChildren(
      tenant ? tr("upload.target", { tenant, collection }) : tr("documents.no_tenant_text"),
    );
  }

  #add(files) {
    const scope = this.#session.scope;
    this.#failure.replaceChildren();
    try {
      const document = {
        title: files.length === 1 ? this.#title.value.trim() : "",
        metadata: this.#metadata.value,
      };
      for (const file of files) {
        const { name, size: bytes } = file;
        this.#waiting.push(this.#newRow({ name, size: bytes, blob: file, document }, scope));
      }
    } catch (error) {
      this.#failure.append(errorBox(error, () => this.#add(files)));
    }
    this.#work();
  }

  /**
   * Returns a new row for a file: `name` is its name, with the path in its archive, and `size` its
   * size in bytes. Its content is `blob`, or what `bytes` returns for a file in an archive.
   * `document` has the title and the metadata that the user has entered.
   */
  #newRow(file, scope) {
    const progress = h("progress", { max: "1", value: "0", tLabel: "upload.progress" });
    const outcome = h("div", { class: "upload-outcome" }, tr("upload.waiting"));
    const row = h(
      "li",
      { class: "upload" },
      h(
        "div",
        { class: "upload-name" },
        data(file.name),
        h("span", { class: "meta" }, size(file.size)),
      ),
      progress,
      outcome,
    );
    this.#rows.prepend(row);
    return { file, scope, progress, outcome };
  }

  async #work() {
    if (this.#isBusy) return;
    this.#isBusy = true;
    while (this.#waiting.length) await this.#send(this.#waiting.shift());
    this.#isBusy = false;
    // An error of the refresh is ignored, because the rows already show the outcome of each upload.
    if (this.#session.tenant) await this.#session.refresh().catch(() => {});
  }

  async #send(upload) {
    const { file, scope, progress, outcome } = upload;
    outcome.replaceChildren(tr("upload.sending"));
    try {
      if (file.blob && isArchiveName(file.name) && (await this.#open(upload))) return;
      await this.#checkSize(file);
      const document = {
        ...file.document,
        documentId: await documentId(file.name),
        source: file.name,
        content: await base64(file.blob ?? (await memberBlob(file))),
      };
      const stored = await ingest({ ...scope, document }, (share) =>
        this.#showProgress(upload, share),
      );
      this.#showStored(upload, stored);
    } catch (error) {
      progress.hidden = true;
      outcome.replaceChildren(errorBox(error, () => this.#again(upload)));
    }
  }

  /**
   * Adds a row for each file in an archive; returns false if the file is a document. Raises
   * CallError if the archive cannot be read.
   */
  async #open({ file, scope, progress, outcome }) {
    outcome.replaceChildren(tr("upload.opening"));
    let members;
    try {
      members = await archiveMembers(file.blob);
    } catch (error) {
      throw new CallError({ code: "unreadable", message: error.message });
    }
    if (members === null) return false;
    const isKnown = ({ path, isBroken }) => isBroken || hasKnownExtension(path);
    const known = members.filter((member) => member.size && isKnown(member));
    const skipped = members.filter((member) => !isKnown(member));
    const document = { metadata: file.document.metadata }; // A title is that of one document.
    const rows = known.map(({ path, size: bytes, bytes: read }) =>
      this.#newRow({ name: `${file.name}/${path}`, size: bytes, bytes: read, document }, scope),
    );
    this.#waiting.unshift(...rows);
    progress.hidden = true;
    outcome.replaceChildren(
      tr("upload.files", { n: known.length }),
      ...(skipped.length ? [tr("upload.skipped", skippedNames(skipped))] : []),
    );
    return true;
  }

  #again(upload) {
    this.#waiting.push(upload);
    upload.outcome.replaceChildren(tr("upload.waiting"));
    this.#work();
  }

  async #checkSize({ size: bytes }) {
    const most = whole((await serverInfo()).limits.documentBytes);
    if (bytes <= most) return;
    throw new CallError({
      code: "invalid_argument",
      message: translate("upload.too_large", { bytes: size(bytes), most: size(most) }),
    });
  }

  #showProgress({ progress, outcome }, share) {
    progress.hidden = false;
    progress.value = share;
    if (share === 1) outcome.replaceChildren(tr("upload.storing"));
  }

  #showStored(
    { progress, outcome },
    { documentId: id, outcome: done, chunksPerLevel = [], tokenCount = 0, report },
  ) {
    const kind = (done ?? "INGEST_OUTCOME_UNSPECIFIED").slice("INGEST_OUTCOME_".length);
    progress.hidden = true;
    outcome.replaceChildren(
      h("span", { class: "badge", t: `outcome.${kind}` }),
      h("code", {}, data(id)),
      tr("passage.tokens", { n: tokenCount }),
      tr("upload.chunks", { n: chunksPerLevel.reduce((sum, count) => sum + count, 0) }),
      ...reportNodes(report),
    );
    announce(`outcome.${kind}`);
  }
}

/** Returns the content of a file in an archive. Raises CallError if it cannot be unpacked. */
async function memberBlob(file) {
  try {
    return new Blob([await file.bytes()]);
  } catch (error) {
    throw new CallError({ code: "unreadable", message: error.message });
  }
}

/** Returns how many files are skipped, and the first of their names. */
function skippedNames(members) {
  const names = members.slice(0, NAMES_SHOWN).map(({ path }) => path);
  if (members.length > NAMES_SHOWN) names.push("…");
  return { n: members.length, names: names.join(", ") };
}

/**
 * Returns a file's bytes in base64. Raises CallError if it cannot be read, for example a folder.
 */
function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.split(",")[1] ?? "");
    reader.onerror = () =>
      reject(new CallError({ code: "unreadable", message: reader.error.message }));
    reader.readAsDataURL(file);
  });
}
