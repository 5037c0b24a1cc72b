// Shows the OpenAPI document: each method with its comment, and each message with its fields.

const nameOf = (reference) => reference.split("/").at(-1);

/** Returns a new element with children; strings become text, never HTML. */
function element(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

/** Returns the nodes of a text; its parts between backticks become code. */
function prose(text) {
  return text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
}

function typeName(schema) {
  if (schema.$ref) return [link(nameOf(schema.$ref))];
  if (schema.type === "array") return ["array of ", ...typeName(schema.items)];
  return [schema.format ? `${schema.type} (${schema.format})` : schema.type];
}

function link(name) {
  return element("a", { href: `#${name}` }, element("code", {}, name));
}

function methodSection(path, { operationId, description, requestBody, responses }) {
  const [request, response] = [requestBody.content, responses[200].content];
  return element("section", { id: operationId },
    element("h3", {}, operationId),
    element("p", {}, element("code", {}, `POST ${path}`)),
    element("p", { className: "comment" }, ...prose(description)),
    element("p", {}, "Request: ", ...contentOf(request)),
    element("p", {}, "Response: ", ...contentOf(response)),
  );
}

function contentOf(content) {
  const [[type, { schema }]] = Object.entries(content);
  const description = schema.$ref ? typeName(schema) : [schema.description ?? schema.type];
  return [element("code", {}, type), " ", ...description];
}

function schemaSection(name, { description = "", properties = {} }) {
  const fields = Object.entries(properties).flatMap(([field, schema]) => [
    element("dt", {}, element("code", {}, field), ": ", ...typeName(schema)),
    element("dd", {}, ...prose(schema.description ?? "")),
  ]);
  return element("section", { id: name },
    element("h3", {}, element("code", {}, name)),
    element("p", { className: "comment" }, ...prose(description)),
    element("dl", {}, ...fields),
  );
}

function grouped(paths) {
  const groups = new Map();
  for (const [path, { post }] of Object.entries(paths)) {
    const group = groups.get(post.tags[0]) ?? [];
    groups.set(post.tags[0], [...group, { path, post }]);
  }
  return groups;
}

const reference = document.getElementById("reference");
try {
  const response = await fetch("openapi.json");
  const { paths, components } = await response.json();
  for (const [tag, operations] of grouped(paths)) {
    reference.append(element("h2", {}, `Methods of ${tag}`));
    const entries = operations.map(({ post }) => element("li", {}, link(post.operationId)));
    document.getElementById("contents").append(element("h2", {}, tag), element("ul", {}, ...entries));
    reference.append(...operations.map(({ path, post }) => methodSection(path, post)));
  }
  reference.append(element("h2", {}, "Messages"));
  for (const [name, schema] of Object.entries(components.schemas)) reference.append(schemaSection(name, schema));
} catch (error) {
  reference.append(element("p", { role: "alert" }, `The document cannot be shown: ${error.message}`));
} finally {
  reference.removeAttribute("aria-busy");
}
