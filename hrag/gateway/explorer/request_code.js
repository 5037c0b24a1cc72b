// Writes a call of the gateway as a program: exactly the request that the page has sent. An API key
// is never part of it; the programs read it from the environment.

const TOKEN = "HRAG_TOKEN"; // The name of the environment variable with the key.

/** The languages, each with the function that writes the program. */
export const LANGUAGES = { curl, Python: python, TypeScript: typeScript };

/** `url` is the address of the method, and `needsKey` says if a key is sent. */
function curl(url, request, needsKey) {
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const key = needsKey ? `  -H "Authorization: Bearer $${TOKEN}" \\\n` : "";
  return `curl ${quoted(url)} \\\n${key}  --json ${quoted(JSON.stringify(request, null, 2))}\n`;
}

function python(url, request, needsKey) {
  const key = needsKey ? `, "Authorization": f"Bearer {os.environ['${TOKEN}']}"` : "";
  return `import json
${needsKey ? "import os\n" : ""}from urllib.request import Request, urlopen

search = ${pythonValue(request)}
headers = {"Content-Type": "application/json"${key}}
request = Request(${JSON.stringify(url)}, json.dumps(search).encode(), headers)
with urlopen(request) as response:
    found = json.load(response)
for passage in found.get("passages", []):
    print(passage.get("score", 0), passage["chunk"]["content"])
`;
}

function typeScript(url, request, needsKey) {
  const key = needsKey ? `, Authorization: \`Bearer \${process.env.${TOKEN}}\`` : "";
  return `const search = ${JSON.stringify(request, null, 2)};
const response = await fetch(${JSON.stringify(url)}, {
  method: "POST",
  headers: { "Content-Type": "application/json"${key} },
  body: JSON.stringify(search),
});
if (!response.ok) throw new Error(await response.text());
const found: { passages?: { score?: number; chunk: { content: string } }[] } = await response.json();
for (const { score = 0, chunk } of found.passages ?? []) console.log(score, chunk.content);
`;
}

/** Returns a JSON value as a literal of Python. Texts of JSON are also texts of Python. */
function pythonValue(value, indent = "") {
  const inner = `${indent}    `;
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return `[\n${value.map((item) => `${inner}${pythonValue(item, inner)},\n`).join("")}${indent}]`;
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined);
    const lines = entries.map(
      ([name, item]) => `${inner}${JSON.stringify(name)}: ${pythonValue(item, inner)},\n`,
    );
    return lines.length ? `{\n${lines.join("")}${indent}}` : "{}";
  }
  if (typeof value === "boolean") return value ? "True" : "False";
  return value === null ? "None" : JSON.stringify(value);
}
