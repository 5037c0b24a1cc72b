// Searches from Node.js. HRAG_URL is the gateway; HRAG_TOKEN and HRAG_CA_FILE are a key and an
// authority for TLS, if the gateway asks for them.

import { readFileSync } from "node:fs";
import { createConnectTransport } from "@connectrpc/connect-node";
import { authorize, search } from "./hrag";

const { HRAG_URL = "http://127.0.0.1:8080", HRAG_TOKEN, HRAG_CA_FILE } = process.env;
const transport = createConnectTransport({
  baseUrl: HRAG_URL,
  httpVersion: "1.1",
  interceptors: [authorize(HRAG_TOKEN)],
  nodeOptions: HRAG_CA_FILE ? { ca: readFileSync(HRAG_CA_FILE) } : {},
});
for (const line of await search(transport, "acme", process.argv[2] ?? "what do dogs do?")) console.log(line);
