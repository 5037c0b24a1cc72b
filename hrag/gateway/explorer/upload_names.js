// Determines the document ids of files, and which files of an archive are documents, by the rules of
// `hrag ingest`. So a file gets the same id in the explorer and by that command.

// The file extensions of all formats that hrag reads.
const EXTENSIONS = new Set(
  (
    "txt text md markdown pdf html htm xhtml docx pptx xlsx xlsm epub csv tsv rst eml msg " +
    "rtf odt odp ods xls ipynb tex latex ltx json jsonl ndjson xml srt vtt png jpg jpeg tif " +
    "tiff py pyi js mjs cjs jsx ts tsx c h cc cpp cxx hh hpp cs go java kt lua pl pm php " +
    "rb rs scala sh bash sql swift"
  ).split(" "),
);
const MAX_ID_CHARS = 128;
const HASH_DIGITS = 8;

/**
 * Returns a readable and valid document id for a file's path. `:` separates folders. If the path
 * cannot be used unchanged, the id ends with a hash of it.
 */
export async function documentId(path) {
  let name = path.replace(/[^A-Za-z0-9._:/-]/gu, "_");
  let isChanged = name !== path || path.includes(":");
  if (!/^[A-Za-z0-9]/.test(name)) [name, isChanged] = [`file${name}`, true];
  if (isChanged || name.length > MAX_ID_CHARS)
    name = `${name.slice(0, MAX_ID_CHARS - HASH_DIGITS - 1)}-${(await hash(path)).slice(0, HASH_DIGITS)}`;
  return name.replaceAll("/", ":");
}

/** Returns true if the extension of a file is the extension of a format that hrag reads. */
export function hasKnownExtension(path) {
  return EXTENSIONS.has(/[^/]\.([^./]+)$/.exec(path)?.[1].toLowerCase());
}

async function hash(text) {
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
