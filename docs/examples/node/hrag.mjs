// hrag from Node.js: connections, metadata as plain objects, and the details of errors.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";
import protobuf from "protobufjs";

// The folder with hrag/v1/*.proto: that of the installed package, or of the checkout.
const PROTOS = process.env.HRAG_PROTOS ?? fileURLToPath(new URL("../../../protos", import.meta.url));

export const LOADING = {
  keepCase: true, // Fields are named as in the .proto files, such as tenant_id.
  longs: String, // Sequences are uint64, which JavaScript numbers would round.
  enums: String,
  defaults: true,
  oneofs: true,
};

export const CHANNEL = {
  "grpc.keepalive_time_ms": 30_000, // Detects dead connections. Servers accept 5 s or more.
};

/** TLS credentials with an optional key; without `ca`, plaintext without a key. */
export function credentials({ ca, token } = {}) {
  if (!ca) return grpc.credentials.createInsecure();
  const channel = grpc.credentials.createSsl(readFileSync(ca));
  if (!token) return channel;
  const bearer = grpc.credentials.createFromMetadataGenerator((_, done) => {
    const metadata = new grpc.Metadata();
    metadata.set("authorization", `Bearer ${token}`);
    done(null, metadata);
  });
  return grpc.credentials.combineChannelCredentials(channel, bearer);
}

/** Clients of both services, made from the .proto files. */
export function connect({ indexer, retriever, ...access }) {
  const files = ["hrag/v1/indexer.proto", "hrag/v1/retriever.proto"];
  const definition = protoLoader.loadSync(files, { ...LOADING, includeDirs: [PROTOS] });
  const { IndexerService, RetrieverService } = grpc.loadPackageDefinition(definition).hrag.v1;
  return {
    indexer: new IndexerService(indexer, credentials(access), CHANNEL),
    retriever: new RetrieverService(retriever, credentials(access), CHANNEL),
  };
}

/** A promise of a unary call's response. The deadline is 30 s unless `options` sets one. */
export function call(client, method, request, options = {}) {
  const deadline = Date.now() + 30_000;
  return new Promise((resolve, reject) =>
    client[method](request, new grpc.Metadata(), { deadline, ...options }, (error, response) =>
      error ? reject(error) : resolve(response),
    ),
  );
}

/** Converts a plain object to a google.protobuf.Struct, the type of `metadata`. */
export function struct(object) {
  return { fields: Object.fromEntries(Object.entries(object).map(([k, v]) => [k, value(v)])) };
}

function value(plain) {
  if (plain === null) return { nullValue: "NULL_VALUE" };
  if (Array.isArray(plain)) return { listValue: { values: plain.map(value) } };
  if (typeof plain === "object") return { structValue: struct(plain) };
  return { [`${typeof plain}Value`.replace("boolean", "bool")]: plain };
}

/** Converts a google.protobuf.Struct to a plain object. */
export function unstruct({ fields }) {
  return Object.fromEntries(Object.entries(fields).map(([k, v]) => [k, unvalue(v)]));
}

function unvalue(message) {
  if (message.kind === "nullValue") return null;
  if (message.kind === "listValue") return message.listValue.values.map(unvalue);
  if (message.kind === "structValue") return unstruct(message.structValue);
  return message[message.kind];
}

const RPC = protobuf.parse(`
  syntax = "proto3";
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; }
  message FieldViolation { string field = 1; string description = 2; }
  message BadRequest { repeated FieldViolation field_violations = 1; }
  message Duration { int64 seconds = 1; int32 nanos = 2; }
  message RetryInfo { Duration retry_delay = 1; }
`, { keepCase: true }).root;

/** The google.rpc details of an error, keyed by message name. */
export function details(error) {
  const [raw] = error.metadata.get("grpc-status-details-bin");
  if (!raw) return {};
  const found = RPC.lookupType("Status").decode(raw).details.map((any) => {
    const name = any.type_url.split("google.rpc.")[1];
    const type = RPC.lookupType(name);
    return [name, type.toObject(type.decode(any.value), LOADING)];
  });
  return Object.fromEntries(found);
}
