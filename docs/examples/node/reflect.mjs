// Searches without .proto files, by server reflection.
//
//   npm install
//   node reflect.mjs "what do dogs do?"
//
// It uses the same environment variables as search.mjs.

import grpc from "@grpc/grpc-js";
import { GrpcReflection } from "grpc-js-reflection-client";
import { CHANNEL, LOADING, call, credentials } from "./hrag.mjs";

const {
  HRAG_RETRIEVER_ADDRESS: address = "127.0.0.1:50052",
  HRAG_CA_FILE: ca,
  HRAG_TOKEN: token,
} = process.env;
const access = credentials({ ca, token });
const [text = "what do dogs do?"] = process.argv.slice(2);

const reflection = new GrpcReflection(address, access, CHANNEL);
console.log((await reflection.listServices()).join(" "));
const described = await reflection.getDescriptorBySymbol("hrag.v1.RetrieverService");
const { RetrieverService } = described.getPackageObject(LOADING).hrag.v1;
const retriever = new RetrieverService(address, access, CHANNEL);
const { passages } = await call(retriever, "Search", { tenant_id: "acme", text, limit: 3 });
for (const { score, chunk } of passages) {
  console.log(score.toFixed(3), chunk.chunk_id, chunk.content);
}
reflection.client.close();
retriever.close();
