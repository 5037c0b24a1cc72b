// Determines the document ids and MIME types of files by the rules of `hrag ingest`. So a file gets
// the same id in the explorer and by that command.

// Each MIME type, with its file extensions.
const TYPES = [
  ["text/plain", "txt text"],
  ["text/markdown", "md markdown"],
  ["application/pdf", "pdf"],
  ["text/html", "html htm xhtml"],
  ["application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"],
  ["application/vnd.openxmlformats-officedocument.presentationml.presentation", "pptx"],
  ["application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"],
  ["application/epub+zip", "epub"],
  ["text/csv", "csv"],
  ["text/tab-separated-values", "tsv"],
  ["text/x-rst", "rst"],
  ["text/x-python", "py pyi"],
  ["text/javascript", "js mjs cjs jsx"],
  ["text/x-typescript", "ts tsx"],
  ["text/x-c", "c h"],
  ["text/x-c++", "cc cpp cxx hh hpp"],
  ["text/x-csharp", "cs"],
  ["text/x-go", "go"],
  ["text/x-java", "java"],
  ["text/x-kotlin", "kt"],
  ["text/x-lua", "lua"],
  ["text/x-perl", "pl pm"],
  ["text/x-php", "php"],
  ["text/x-ruby", "rb"],
  ["text/x-rust", "rs"],
  ["text/x-scala", "scala"],
  ["text/x-shellscript", "sh bash"],
  ["text/x-sql", "sql"],
  ["text/x-swift", "swift"],
];
const MAX_ID_CHARS = 128;
const HASH_DIGITS = 8;

/**
 * Returns a readable and valid document id for a file. If the file's name is not a valid id, the id
 * is the name with other characters, followed by a hash of the original name.
 */
export async function documentId(fileName) {
  let name = fileName.replace(/[^A-Za-z0-9._:-]/gu, "_");
  let isChanged = name !== fileName || fileName.includes(":");
  if (!/^[A-Za-z0-9]/.test(name)) [name, isChanged] = [`file${name}`, true];
  if (!isChanged && name.length <= MAX_ID_CHARS) return name;
  return `${name.slice(0, MAX_ID_CHARS - HASH_DIGITS - 1)}-${(await hash(fileName)).slice(0, HASH_DIGITS)}`;
}

/**
 * Returns the MIME type of a file. If the extension is unknown, returns an empty text, so that the
 * server detects the type by the content.
 */
export function mimeType(fileName) {
  const extension = /.\.([^.]+)$/.exec(fileName)?.[1].toLowerCase();
  return TYPES.find(([, extensions]) => extensions.split(" ").includes(extension))?.[0] ?? "";
}

async function hash(text) {
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
