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

function methodSection({ path, verb, operation: { operationId, description, parameters, requestBody, responses } }) {
  const fields = parameters.filter((parameter) => parameter.in !== "header");
  const request = requestBody ? [element("p", {}, "Request: ", ...contentOf(requestBody.content))] : [];
  return element("section", { id: operationId },
    element("h3", {}, operationId),
    element("p", {}, element("code", {}, `${verb.toUpperCase()} ${path}`)),
    element("p", { className: "comment" }, ...prose(description)),
    ...request,
    element("p", {}, "Response: ", ...contentOf(responses[200].content)),
    element("dl", {}, ...fields.flatMap((parameter) => entry(parameter.name, parameter.schema, parameter.description))),
  );
}

/** Returns the nodes that describe one field or parameter. */
function entry(name, schema, description = "") {
  return [
    element("dt", {}, element("code", {}, name), ": ", ...typeName(schema)),
    element("dd", {}, ...prose(description)),
  ];
}

function contentOf(content) {
  const [[type, { schema }]] = Object.entries(content);
  const description = schema.$ref ? typeName(schema) : [schema.description ?? schema.type];
  return [element("code", {}, type), " ", ...description];
}

function schemaSection(name, { description = "", properties = {} }) {
  const fields = Object.entries(properties).flatMap(([field, schema]) => entry(field, schema, schema.description));
  return element("section", { id: name },
    element("h3", {}, element("code", {}, name)),
    element("p", { className: "comment" }, ...prose(description)),
    element("dl", {}, ...fields),
  );
}

function grouped(paths) {
  const groups = new Map();
  for (const [path, operations] of Object.entries(paths)) {
    for (const [verb, operation] of Object.entries(operations)) {
      const tag = operation.tags[0];
      groups.set(tag, [...(groups.get(tag) ?? []), { path, verb, operation }]);
    }
  }
  return groups;
}

const reference = document.getElementById("reference");
try {
  const response = await fetch("openapi.json");
  const { paths, components } = await response.json();
  for (const [tag, operations] of grouped(paths)) {
    reference.append(element("h2", {}, `Methods of ${tag}`));
    const entries = operations.map(({ operation }) => element("li", {}, link(operation.operationId)));
    document.getElementById("contents").append(element("h2", {}, tag), element("ul", {}, ...entries));
    reference.append(...operations.map(methodSection));
  }
  reference.append(element("h2", {}, "Messages"));
  for (const [name, schema] of Object.entries(components.schemas)) reference.append(schemaSection(name, schema));
} catch (error) {
  reference.append(element("p", { role: "alert" }, `The document cannot be shown: ${error.message}`));
} finally {
  reference.removeAttribute("aria-busy");
}
