// Searches from a page. The gateway must allow the page's origin (HRAG_HTTP_ORIGINS).

import { createConnectTransport } from "@connectrpc/connect-web";
import { authorize, search } from "./hrag";

const form = document.querySelector("form")!;
const list = document.querySelector("ol")!;

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const values = new FormData(form);
  const value = (name: string) => String(values.get(name) ?? "");
  const transport = createConnectTransport({
    baseUrl: value("url"),
    interceptors: [authorize(value("key"))],
  });
  let lines: string[];
  try {
    lines = await search(transport, "acme", value("text"));
  } catch (error) {
    lines = [String(error)];
  }
  // Texts of documents become text, never HTML.
  list.replaceChildren(...lines.map((line) => Object.assign(document.createElement("li"), { textContent: line })));
});
