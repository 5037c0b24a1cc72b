// A form that fills in and sends a request. The key is read from its field when a request is sent,
// and is part of no text, address or storage.

import { element } from "./elements.js";
import { bodyOf, curlOf, exampleText, requestOf } from "./request.js";
import { showReply } from "./reply.js";

const tenantField = document.getElementById("tenant");
const keyField = document.getElementById("key");

/** Returns the folded form of an operation. It is made when it is opened first. */
export function tryForm(target) {
  const folded = element("details", { className: "try" }, element("summary", {}, "Try it"));
  const open = () => folded.append(new TryForm(target).node);
  folded.addEventListener("toggle", open, { once: true });
  return folded;
}

class TryForm {
  #target;
  #id;
  #parameters = new Map();
  #editor;
  #example = "";
  #curl = element("pre", { tabIndex: 0 });
  #problem = element("p", { className: "is-bad", role: "alert" });
  #send = element("button", { className: "main-button" }, "Send");
  #stop = element("button", { type: "button", hidden: true }, "Stop");
  #reply = element("div", { className: "reply" });
  #sending;

  constructor(target) {
    this.#target = target;
    this.#id = target.operation.operationId;
    this.node = element("form", { autocomplete: "off" }, ...this.#fields(), ...this.#output());
    this.node.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.node.addEventListener("input", () => this.#show());
    this.#stop.addEventListener("click", () => this.#sending?.abort());
    keyField.addEventListener("input", () => this.#show());
    tenantField.addEventListener("input", () => this.#changeTenant());
    this.#show();
  }

  #fields() {
    const parameters = this.#target.operation.parameters.filter((each) => each.in !== "header");
    const fields = parameters.map((parameter) => this.#parameterField(parameter));
    const body = bodyOf(this.#target.operation);
    if (!body) return fields;
    this.#example = exampleText(body.example, tenantField.value);
    const rows = Math.min(this.#example.split("\n").length + 1, 16);
    this.#editor = element("textarea", { value: this.#example, rows, spellcheck: false, className: "mono" });
    return [...fields, labelled(`${this.#id}-body`, `Body (${body.type})`, this.#editor)];
  }

  #parameterField({ name, example = "", required }) {
    const value = name === "tenant_id" ? tenantField.value : example;
    const input = element("input", { value, spellcheck: false, className: "mono" });
    input.required = Boolean(required);
    this.#parameters.set(name, input);
    return labelled(`${this.#id}-${name}`, name, input);
  }

  #output() {
    const copy = element("button", { type: "button", className: "quiet-button" }, "Copy");
    copy.addEventListener("click", () => copyText(this.#curl));
    this.#curl.setAttribute("aria-label", `${this.#id} with curl`);
    return [
      element("div", { className: "code" }, element("h4", {}, "With curl"), copy, this.#curl),
      this.#problem,
      element("p", { className: "buttons" }, this.#send, this.#stop),
      this.#reply,
    ];
  }

  /** Puts the tenant into the fields; a body that was edited keeps its own. */
  #changeTenant() {
    const tenant = tenantField.value;
    const parameter = this.#parameters.get("tenant_id");
    if (parameter) parameter.value = tenant;
    if (this.#editor?.value === this.#example) {
      this.#example = exampleText(bodyOf(this.#target.operation).example, tenant);
      this.#editor.value = this.#example;
    }
    this.#show();
  }

  #request() {
    const values = Object.fromEntries([...this.#parameters].map(([name, { value }]) => [name, value]));
    return requestOf(this.#target, values, this.#editor?.value);
  }

  /** Shows the command, or why there is none. */
  #show() {
    try {
      this.#curl.textContent = curlOf(this.#request(), keyField.value !== "");
      this.#problem.textContent = "";
    } catch (error) {
      this.#curl.textContent = "";
      this.#problem.textContent = `The body is not JSON: ${error.message}`;
    }
    this.#send.disabled = Boolean(this.#problem.textContent) || Boolean(this.#sending);
  }

  async #submit() {
    const warning = `${this.#id} deletes what the request names. Send it?`;
    if (this.#id.startsWith("Delete") && !confirm(warning)) return;
    this.#sending = new AbortController();
    this.#send.disabled = true;
    this.#stop.hidden = false;
    try {
      const { url, method, type, body } = this.#request();
      const headers = type ? { "Content-Type": type } : {};
      if (keyField.value) headers.Authorization = `Bearer ${keyField.value}`;
      const { signal } = this.#sending;
      const options = { method, headers, body, signal, credentials: "omit", cache: "no-store" };
      await showReply(this.#reply, this.#id, () => fetch(url, options));
    } finally {
      this.#sending = undefined;
      this.#stop.hidden = true;
      this.#show();
    }
  }
}

function labelled(id, text, control) {
  control.id = id;
  return element("div", { className: "field" }, element("label", { htmlFor: id }, text), control);
}

/** Copies the text of a node. Browsers have no clipboard on pages without TLS of other machines. */
async function copyText(node) {
  if (navigator.clipboard) return navigator.clipboard.writeText(node.textContent);
  getSelection().selectAllChildren(node);
  return document.execCommand("copy");
}
