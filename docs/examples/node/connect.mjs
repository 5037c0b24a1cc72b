// Stores a document and finds it over HTTP, with the client of the Connect protocol.
//
// It uses the service descriptors that the build writes. @bufbuild/protoc-gen-es generates typed
// code instead.
//
//   hrag serve --http 127.0.0.1:8080 &
//   node connect.mjs "what do dogs do?"

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";

// The folder with hrag/v1: that of the installed package, or of the checkout.
const PROTOS = process.env.HRAG_PROTOS ?? fileURLToPath(new URL("../../..", import.meta.url));
const DESCRIPTORS = `${PROTOS}/hrag/v1/descriptors.pb`;
const { HRAG_URL = "http://127.0.0.1:8080", HRAG_TOKEN, HRAG_CA_FILE } = process.env;

const services = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(DESCRIPTORS)));

/** Sends the key with each call. */
const authorize = (next) => (request) => {
  if (HRAG_TOKEN) request.header.set("Authorization", `Bearer ${HRAG_TOKEN}`);
  return next(request);
};

const transport = createConnectTransport({
  baseUrl: HRAG_URL,
  httpVersion: "1.1",
  interceptors: [authorize],
  nodeOptions: HRAG_CA_FILE ? { ca: readFileSync(HRAG_CA_FILE) } : {},
});
const indexer = createClient(services.getService("hrag.v1.IndexerService"), transport);
const retriever = createClient(services.getService("hrag.v1.RetrieverService"), transport);

const text = process.argv[2] ?? "what do dogs do?";
const tenantId = "acme";
const document = {
  documentId: "pets",
  title: "Pets",
  body: { case: "text", value: "Cats sleep. Dogs bark." },
};

await indexer.ingestDocument({ tenantId, document });
const { passages } = await retriever.search({ tenantId, text, limit: 3 });
for (const { score, chunk } of passages) {
  console.log(score.toFixed(3), chunk.chunkId, chunk.content);
}
try {
  for await (const { event } of retriever.answer({ search: { tenantId, text } })) {
    if (event.case === "text") process.stdout.write(event.value);
  }
  console.log();
} catch (error) {
  console.log(error.message); // Without a chat model: [failed_precondition] ...
}
