// The part of the example that runs in Node.js and in a browser: typed calls over Connect.

import { createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { IndexerService } from "./gen/hrag/v1/indexer_pb";
import { RetrieverService } from "./gen/hrag/v1/retriever_pb";

/** Sends the key with each call. */
export function authorize(key?: string): Interceptor {
  return (next) => (request) => {
    if (key) request.header.set("Authorization", `Bearer ${key}`);
    return next(request);
  };
}

/** Stores a document, searches for the text, and returns a line for each passage. */
export async function search(transport: Transport, tenantId: string, text: string): Promise<string[]> {
  const indexer = createClient(IndexerService, transport);
  const retriever = createClient(RetrieverService, transport);
  const { sequence } = await indexer.ingestDocument({
    tenantId,
    document: {
      documentId: "pets",
      title: "Pets",
      body: { case: "text", value: "Cats sleep. Dogs bark." },
    },
  });
  // minSequence makes any retriever wait until it sees this document.
  const { passages } = await retriever.search({ tenantId, text, limit: 3, minSequence: sequence });
  return passages.map(({ score, chunk }) => `${score.toFixed(3)} ${chunk?.chunkId} ${chunk?.content}`);
}
