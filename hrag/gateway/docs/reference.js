// Shows the OpenAPI document: each method with its comment and a form that sends it, and each message
// with its fields.

import { element, paragraphs } from "./elements.js";
import { bodyOf } from "./request.js";
import { tryForm } from "./try_form.js";

const nameOf = (reference) => reference.split("/").at(-1);

function typeName(schema) {
  if (schema.$ref) return [link(nameOf(schema.$ref))];
  if (schema.type === "array") return ["array of ", ...typeName(schema.items)];
  return [schema.format ? `${schema.type} (${schema.format})` : schema.type];
}

function link(name) {
  return element("a", { href: `#${name}` }, element("code", {}, name));
}

function methodSection(target) {
  const { path, verb, operation } = target;
  const { operationId, description, parameters, requestBody, responses } = operation;
  const fields = parameters.filter((parameter) => parameter.in !== "header");
  const request = requestBody ? [element("p", {}, "Request: ", ...contentOf(requestBody.content))] : [];
  return element(
    "section",
    { id: operationId },
    element("h3", {}, operationId),
    element("p", { className: "path" }, element("code", {}, `${verb.toUpperCase()} ${path}`)),
    ...paragraphs(description),
    ...request,
    element("p", {}, "Response: ", ...contentOf(responses[200].content)),
    ...fieldList(fields.map(({ name, schema, description: text }) => entry(name, schema, text))),
    tryForm(target),
  );
}

/** Returns the nodes that describe one field or parameter. */
function entry(name, schema, description = "") {
  return [
    element("dt", {}, element("code", {}, name), ": ", ...typeName(schema)),
    element("dd", {}, ...paragraphs(description)),
  ];
}

function fieldList(entries) {
  return entries.length ? [element("dl", {}, ...entries.flat())] : [];
}

function contentOf(content) {
  const [[type, { schema }]] = Object.entries(content);
  const description = schema.$ref ? typeName(schema) : [schema.description ?? schema.type];
  return [element("code", {}, type), " ", ...description];
}

function schemaSection(name, { description = "", properties = {} }) {
  const entries = Object.entries(properties);
  return element(
    "section",
    { id: name },
    element("h3", {}, element("code", {}, name)),
    ...paragraphs(description),
    ...fieldList(entries.map(([field, schema]) => entry(field, schema, schema.description))),
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

/** Returns the tenant of the examples. */
function exampleTenant(paths) {
  const bodies = Object.values(paths).map(({ post }) => post && bodyOf(post)?.example?.tenantId);
  return bodies.find(Boolean) ?? "";
}

const reference = document.getElementById("reference");
const contents = document.getElementById("contents");

function addGroup(title, sections) {
  const entries = sections.map(({ id }) => element("li", {}, link(id)));
  contents.append(element("h2", {}, title), element("ul", {}, ...entries));
  reference.append(element("h2", {}, title), ...sections);
}

try {
  const response = await fetch("openapi.json");
  const { paths, components } = await response.json();
  document.getElementById("tenant").value = exampleTenant(paths);
  for (const [tag, targets] of grouped(paths)) addGroup(tag, targets.map(methodSection));
  const schemas = Object.entries(components.schemas);
  addGroup("Messages", schemas.map(([name, schema]) => schemaSection(name, schema)));
} catch (error) {
  reference.append(element("p", { role: "alert" }, `The document cannot be shown: ${error.message}`));
} finally {
  reference.removeAttribute("aria-busy");
}
contents.open = matchMedia("(min-width: 60rem)").matches;
// The section that the address names exists only now.
document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
