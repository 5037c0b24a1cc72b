// Stores a document and searches for it:
//
//   npm install
//   node search.mjs "what do dogs do?"
//
// HRAG_INDEXER_ADDRESS and HRAG_RETRIEVER_ADDRESS are the services' addresses. Set HRAG_CA_FILE
// if they use TLS and HRAG_TOKEN if they ask for a key.

import { call, connect, details, struct } from "./hrag.mjs";

const {
  HRAG_INDEXER_ADDRESS: indexer = "127.0.0.1:50051",
  HRAG_RETRIEVER_ADDRESS: retriever = "127.0.0.1:50052",
  HRAG_CA_FILE: ca,
  HRAG_TOKEN: token,
} = process.env;
const hrag = connect({ indexer, retriever, ca, token });
const [text = "what do dogs do?"] = process.argv.slice(2);
const tenant_id = "acme";

try {
  const { sequence } = await call(hrag.indexer, "IngestDocument", {
    tenant_id,
    document: {
      document_id: "pets",
      title: "Pets",
      text: "Cats sleep. Dogs bark.",
      metadata: struct({ team: "zoo", year: 2026 }),
    },
  });
  // min_sequence makes any retriever wait until it sees this document.
  const search = { tenant_id, text, limit: 3, min_sequence: sequence };
  const { passages } = await call(hrag.retriever, "Search", search);
  for (const { score, chunk } of passages) {
    console.log(score.toFixed(3), chunk.chunk_id, chunk.content);
  }
} catch (error) {
  console.error(error.message, details(error));
  process.exitCode = 1;
}
hrag.indexer.close();
hrag.retriever.close();
