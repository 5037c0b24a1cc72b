// The request of an operation, and the same request as a command of curl.

const TOKEN = "HRAG_TOKEN"; // The environment variable from which the command reads the key.
const JSON_TYPE = "application/json";

/** Returns the media type of a body, and the example; undefined if the operation has no body. */
export function bodyOf({ requestBody }) {
  if (!requestBody) return undefined;
  const [[type, { example }]] = Object.entries(requestBody.content);
  return { type, example };
}

/** Returns an example with another tenant, as the text that an editor shows. */
export function exampleText(example, tenant) {
  const withTenant = (name, value) => (name === "tenantId" ? tenant : value);
  if (typeof example === "string") {
    const lines = example.trimEnd().split("\n");
    return lines.map((line) => JSON.stringify(JSON.parse(line, withTenant))).join("\n");
  }
  return JSON.stringify(example ?? {}, withTenant, 2);
}

/**
 * Returns the request that an operation and its fields make: URL, method, media type and body.
 * Raises SyntaxError if the body is not JSON. `values` has the parameters by name; empty ones are
 * not sent.
 */
export function requestOf({ path, verb, operation }, values, text) {
  const url = new URL(
    path.slice(1).replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name] ?? "")),
    document.baseURI.split("#")[0],
  );
  for (const { name, in: place } of operation.parameters) {
    if (place === "query" && values[name]) url.searchParams.set(name, values[name]);
  }
  const { type } = bodyOf(operation) ?? {};
  if (type === JSON_TYPE) JSON.parse(text);
  return { url: url.href, method: verb.toUpperCase(), type, body: type && text };
}

/** Returns the command of curl that sends a request; `needsKey` says if it sends a key. */
export function curlOf({ url, type, body }, needsKey) {
  const lines = [`curl ${quoted(url)}`];
  if (needsKey) lines.push(`-H "Authorization: Bearer $${TOKEN}"`);
  if (type === JSON_TYPE) lines.push(`--json ${quoted(body)}`);
  else if (type) lines.push(`-H 'Content-Type: ${type}'`, `--data-binary ${quoted(body)}`);
  return lines.join(" \\\n  ");
}

function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
