// Lists and reads the files in archives (ZIP, TAR, TGZ, GZ) by the rules of `hrag ingest`. So an
// archive gives the same documents in the explorer and by that command. Everything is limited,
// because an archive can be made to use up memory. The numbers of files and bytes have lower limits
// than in that command, because a page has less memory.

const EXTENSIONS = /\.(zip|tar|tgz|gz)$/i;
const MAX_MEMBERS = 10_000;
const MAX_UNPACKED_BYTES = 1 << 30;
// The size of an archive's files may be this many times its own size, or RATIO_APPLIES_BYTES.
const MAX_RATIO = 200;
const RATIO_APPLIES_BYTES = 64 << 20;
const MAX_DEPTH = 3;
const MAX_HEADER_BYTES = 1 << 20;
const BLOCK = 512;
// A ZIP file with one of these members is a document of a format that consists of files. The indexer
// refuses some of them, for example documents of Pages (.iwa), and says what helps.
const DOCUMENT_MEMBERS = [
  "[Content_Types].xml",
  "mimetype",
  "META-INF/container.xml",
  "Index/Document.iwa",
];
const END_SIGNATURE = 0x06054b50;
const ENTRY_SIGNATURE = 0x02014b50;
const END_BYTES = 22;
const MAX_COMMENT_BYTES = 0xffff;
const ENTRY_BYTES = 46;
const LOCAL_BYTES = 30;
const IS_ENCRYPTED = 1;
const IS_UTF_8 = 0x800;

/** The error of an archive that cannot be read. */
class ArchiveError extends Error {}

export function isArchiveName(name) {
  return EXTENSIONS.test(name);
}

/**
 * Returns the files in an archive as `{ path, size, bytes }`, where `bytes` returns a promise of the
 * content. An archive inside it that cannot be read has `isBroken`, and its promise is rejected.
 * Hidden files are left out, and so are files whose paths lead out of the archive. Returns null if
 * the file is not an archive but a document. Raises an error if the archive cannot be read; its
 * message says why.
 */
export async function archiveMembers(file) {
  const budget = { archiveBytes: file.size, members: 0, bytes: 0 };
  try {
    return await members(file, file.name, "", budget, 1);
  } catch (error) {
    if (error instanceof ArchiveError) throw error;
    throw new ArchiveError(`the archive is damaged or cut off: ${error.message}`);
  }
}

async function members(blob, name, prefix, budget, depth) {
  if (depth > MAX_DEPTH) throw new ArchiveError(`it is an archive inside ${MAX_DEPTH} archives`);
  const start = await part(blob, 0, BLOCK);
  let entries;
  if (start[0] === 0x50 && start[1] === 0x4b) entries = await zipMembers(blob);
  else if (start[0] === 0x1f && start[1] === 0x8b) entries = await gzipMembers(blob, name, budget);
  else if (isTar(start)) entries = await tarMembers(blob);
  else throw new ArchiveError("it is not an archive, although its name is the name of one");
  if (entries.some(({ path }) => DOCUMENT_MEMBERS.includes(path))) return null;
  const listed = new Map(); // The last member of several with the same path counts, as in TAR.
  for (const member of entries) {
    spend(budget, member.size);
    const path = safePath(member.path);
    if (path) listed.set(prefix + path, member);
  }
  const all = [];
  for (const [path, member] of listed) {
    const inner = isArchiveName(path) ? await innerMembers(path, member, budget, depth) : null;
    all.push(...(inner ?? [{ ...member, path }]));
  }
  return all;
}

/**
 * Returns the files in an archive inside an archive; null if it is a document. If it cannot be read,
 * returns the archive itself, whose promise is rejected with the error.
 */
async function innerMembers(path, member, budget, depth) {
  try {
    const blob = new Blob([await member.bytes()]);
    return await members(blob, path.split("/").pop(), `${path}/`, budget, depth + 1);
  } catch (error) {
    return [{ path, size: member.size, bytes: () => Promise.reject(error), isBroken: true }];
  }
}

function spend(budget, size) {
  budget.members += 1;
  budget.bytes += size;
  if (budget.members > MAX_MEMBERS)
    throw new ArchiveError(`the archive has more than ${MAX_MEMBERS} files`);
  const limit = unpackedLimit(budget);
  if (budget.bytes > limit)
    throw new ArchiveError(`the archive has more than ${limit} bytes when it is unpacked`);
}

function unpackedLimit({ archiveBytes }) {
  return Math.min(MAX_UNPACKED_BYTES, Math.max(RATIO_APPLIES_BYTES, MAX_RATIO * archiveBytes));
}

/** Returns a member's path in Unicode form NFC; empty if it is hidden or leads out of the archive. */
function safePath(path) {
  const parts = path.normalize("NFC").split("/").filter((name) => name && name !== ".");
  const isHidden = parts.some((name) => name.startsWith(".") || name === "__MACOSX");
  return path.startsWith("/") || /^[A-Za-z]:/.test(path) || isHidden ? "" : parts.join("/");
}

async function part(blob, start, end) {
  return new Uint8Array(await blob.slice(start, end).arrayBuffer());
}

// The following functions read ZIP files.

async function zipMembers(blob) {
  const { count, offset, size } = await zipEnd(blob);
  const directory = await part(blob, offset, offset + size);
  const view = new DataView(directory.buffer);
  const entries = [];
  let at = 0;
  for (let index = 0; index < count; index += 1) {
    if (view.getUint32(at, true) !== ENTRY_SIGNATURE)
      throw new ArchiveError("the archive is damaged: its list of files is broken");
    const field = (from) => view.getUint16(at + from, true);
    const name = directory.subarray(at + ENTRY_BYTES, at + ENTRY_BYTES + field(28));
    const entry = {
      path: zipName(name, field(8) & IS_UTF_8),
      size: view.getUint32(at + 24, true),
      packed: view.getUint32(at + 20, true),
      offset: view.getUint32(at + 42, true),
      method: field(10),
      isEncrypted: Boolean(field(8) & IS_ENCRYPTED),
    };
    if (!entry.path.endsWith("/"))
      entries.push({ path: entry.path, size: entry.size, bytes: () => zipBytes(blob, entry) });
    at += ENTRY_BYTES + field(28) + field(30) + field(32);
  }
  return entries;
}

/** Returns the position of a ZIP file's directory, from the record at the end of the file. */
async function zipEnd(blob) {
  const start = Math.max(0, blob.size - END_BYTES - MAX_COMMENT_BYTES);
  const bytes = await part(blob, start, blob.size);
  const view = new DataView(bytes.buffer);
  for (let at = bytes.length - END_BYTES; at >= 0; at -= 1) {
    if (view.getUint32(at, true) !== END_SIGNATURE) continue;
    const count = view.getUint16(at + 10, true);
    if (count === 0xffff) throw new ArchiveError(`the archive has more than ${MAX_MEMBERS} files`);
    return {
      count,
      size: view.getUint32(at + 12, true),
      offset: view.getUint32(at + 16, true),
    };
  }
  throw new ArchiveError("the archive is damaged or cut off");
}

/**
 * Returns the name of a member. Many programs write UTF-8 without saying so, and programs of Windows
 * write backslashes.
 */
function zipName(bytes, isUtf8) {
  let name;
  try {
    name = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    name = new TextDecoder(isUtf8 ? "utf-8" : "windows-1252").decode(bytes);
  }
  return name.includes("/") ? name : name.replaceAll("\\", "/");
}

async function zipBytes(blob, { offset, packed, size, method, isEncrypted }) {
  if (isEncrypted) throw new ArchiveError("it is encrypted in the archive");
  const header = new DataView(await blob.slice(offset, offset + LOCAL_BYTES).arrayBuffer());
  const start = offset + LOCAL_BYTES + header.getUint16(26, true) + header.getUint16(28, true);
  const content = blob.slice(start, start + packed);
  if (method === 0) return new Uint8Array(await content.arrayBuffer());
  if (method !== 8)
    throw new ArchiveError(`its compression is method ${method} of ZIP; methods 0 and 8 are read`);
  return unpack(content, "deflate-raw", size);
}

/** Returns unpacked bytes. Raises ArchiveError once there are more than `limit`. */
async function unpack(blob, format, limit) {
  const parts = [];
  let length = 0;
  for await (const chunk of blob.stream().pipeThrough(new DecompressionStream(format))) {
    length += chunk.length;
    if (length > limit)
      throw new ArchiveError(`it has more than ${limit} bytes when it is unpacked`);
    parts.push(chunk);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

// The following functions read GZIP and TAR files.

async function gzipMembers(blob, name, budget) {
  const content = await unpack(blob, "gzip", unpackedLimit(budget) - budget.bytes);
  if (isTar(content)) return tarMembers(new Blob([content]));
  const path = /\.gz$/i.test(name) ? name.slice(0, -".gz".length) : `${name}.content`;
  return [{ path, size: content.length, bytes: async () => content }];
}

function isTar(start) {
  return text(start, 257, 5) === "ustar";
}

async function tarMembers(blob) {
  const entries = [];
  let [at, longName] = [0, ""];
  while (at + BLOCK <= blob.size && entries.length <= MAX_MEMBERS) {
    const header = await part(blob, at, at + BLOCK);
    if (header.every((byte) => byte === 0)) break;
    const size = tarSize(header);
    const kind = String.fromCharCode(header[156] || 0x30);
    const [start, end] = [at + BLOCK, at + BLOCK + size];
    at = start + Math.ceil(size / BLOCK) * BLOCK;
    if (kind === "L" || kind === "x") {
      if (size > MAX_HEADER_BYTES)
        throw new ArchiveError(`the archive has a header of ${size} bytes`);
      longName = nameIn(await part(blob, start, end), kind) || longName;
      continue;
    }
    const folder = text(header, 345, 155);
    const path = longName || (folder ? `${folder}/` : "") + text(header, 0, 100);
    longName = "";
    if (kind === "0") entries.push({ path, size, bytes: () => part(blob, start, end) });
  }
  return entries;
}

function tarSize(header) {
  const size = Number.parseInt(text(header, 124, 12).trim() || "0", 8);
  if (!(size >= 0)) throw new ArchiveError("the archive is damaged: a size is not a number");
  return size;
}

/** Returns the name in a header of GNU (`L`) or PAX (`x`). */
function nameIn(bytes, kind) {
  if (kind === "L") return text(bytes, 0, bytes.length);
  return /(?:^|\n)\d+ path=([^\n]*)/.exec(new TextDecoder().decode(bytes))?.[1] ?? "";
}

function text(bytes, start, length) {
  const field = bytes.subarray(start, start + length);
  const end = field.indexOf(0);
  return new TextDecoder().decode(end < 0 ? field : field.subarray(0, end));
}
