// Document ids and types of files, as `hrag ingest` gives them: the same file gets the same id.

// Types with the extensions that stand for them.
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
const MOST_ID_CHARS = 128;
const HASH_DIGITS = 8;

/** Returns a readable, valid id; a name that cannot be kept as it is gets a hash behind it. */
export async function documentId(fileName) {
  let name = fileName.replace(/[^A-Za-z0-9._:-]/gu, "_");
  let isChanged = name !== fileName || fileName.includes(":");
  if (!/^[A-Za-z0-9]/.test(name)) [name, isChanged] = [`file${name}`, true];
  if (!isChanged && name.length <= MOST_ID_CHARS) return name;
  return `${name.slice(0, MOST_ID_CHARS - HASH_DIGITS - 1)}-${(await hash(fileName)).slice(0, HASH_DIGITS)}`;
}

/** Returns the type of a file; empty for an unknown one, which the server detects by its content. */
export function mimeType(fileName) {
  const extension = /.\.([^.]+)$/.exec(fileName)?.[1].toLowerCase();
  return TYPES.find(([, extensions]) => extensions.split(" ").includes(extension))?.[0] ?? "";
}

async function hash(text) {
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
