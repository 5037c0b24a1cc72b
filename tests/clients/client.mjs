// A Node.js client that is created from the .proto files. It makes calls and prints a report as
// JSON, whose keys are the names of the functions below. The assertions are in test_node.py.
//
// Its one argument is JSON: addresses, valid credentials, and credentials that must be refused.

import { createRequire } from "node:module";
import { Readable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";
import {
  CHANNEL,
  call,
  connect,
  credentials,
  details,
  struct,
  unstruct,
} from "../../docs/examples/node/hrag.mjs";

// The packages are installed in the folder of the examples.
const require = createRequire(new URL("../../docs/examples/node/hrag.mjs", import.meta.url));
const grpc = require("@grpc/grpc-js");
const { GrpcReflection } = require("grpc-js-reflection-client");

const input = JSON.parse(process.argv[2]);
const { indexer, retriever } = connect(input);
const { tenant_id, text } = input;
const METADATA = { team: "zoo", year: 2026.5, open: true, until: null, of: ["cats", { dogs: 2 }] };
const COLLECTION = "stream";

/** Returns the error of a call, reduced to the parts on which clients can rely. */
async function failure(promise) {
  try {
    return { answered: await promise };
  } catch (error) {
    const { code, details: message } = error;
    return { code: grpc.status[code], message, details: details(error) };
  }
}

const search = (more) => call(retriever, "Search", { tenant_id, text, ...more });
const summaryOf = ({ passages, mode }) => ({
  mode,
  chunks: passages.map(({ chunk }) => chunk.chunk_id),
  levels: passages.map(({ chunk }) => chunk.level),
  matched: passages.map(({ matched_children }) => matched_children.length),
});

async function collections() {
  const settings = { level_sizes: [32, 64, 128], overlap_ratio: 0.1, summaries: "SUMMARY_UNIT_CHUNK" };
  const request = { tenant_id, name: "books", settings };
  const { collection, sequence } = await call(indexer, "CreateCollection", request);
  return { collection, sequence, again: await failure(call(indexer, "CreateCollection", request)) };
}

async function documents() {
  const document = { document_id: "pets", title: "Pets", text: input.book, metadata: struct(METADATA) };
  const request = { tenant_id, collection: "books", document };
  const first = await call(indexer, "IngestDocument", request);
  const second = await call(indexer, "IngestDocument", request);
  const place = { tenant_id, collection: "books", document_id: "pets", include_text: true };
  const stored = await call(indexer, "GetDocument", place);
  return {
    first,
    second,
    same_text: stored.text === input.book,
    metadata: unstruct(stored.document.metadata),
  };
}

/** Sends a stream of documents, one of them blank, and reads responses meanwhile. */
async function stream() {
  await call(indexer, "CreateCollection", { tenant_id, name: COLLECTION });
  let sent = 0;
  function* requests() {
    for (; sent < input.documents; sent += 1) {
      const body = sent === input.blank ? " " : `Document ${sent} says so. `.repeat(1000);
      const document = { document_id: `d${sent}`, text: body, metadata: struct({ number: sent }) };
      yield { tenant_id, collection: COLLECTION, document };
    }
  }
  const both = indexer.IngestDocuments();
  Readable.from(requests()).pipe(both); // pipe() waits for "drain" when write() asks for it.
  const outcomes = [];
  let most_ahead = 0;
  for await (const response of both) {
    most_ahead = Math.max(most_ahead, sent - outcomes.length);
    outcomes.push(...response.outcomes);
  }
  const last = outcomes.at(-1).result.sequence;
  const result = await search({ collection: COLLECTION, min_sequence: last, limit: 3 });
  return {
    most_ahead,
    ids: outcomes.map(({ result, error }) => (result ?? error).document_id),
    error: outcomes[input.blank].error,
    last,
    sequence_of_search: result.sequence,
    passages: result.passages.length,
  };
}

async function listing() {
  const ids = [];
  const pages = [];
  let page_token = "";
  do {
    const request = { tenant_id, collection: COLLECTION, page_size: 300, page_token };
    const page = await call(indexer, "ListDocuments", request);
    ids.push(...page.documents.map(({ document_id }) => document_id));
    pages.push(page.documents.length);
    page_token = page.next_page_token;
  } while (page_token);
  return { pages, distinct: new Set(ids).size };
}

async function modes() {
  const place = { tenant_id, collection: "books" };
  let status;
  do {
    await pause(50);
    status = await call(indexer, "GetIndexStatus", place);
  } while (status.unsummarised_documents !== "0");
  const summaries = {};
  for (const mode of ["UNSPECIFIED", ...input.modes]) {
    const name = `SEARCH_MODE_${mode}`;
    summaries[mode] = summaryOf(await search({ collection: "books", mode: name, limit: 2 }));
  }
  return summaries;
}

async function batch() {
  const searches = [{ limit: 1 }, { limit: 0 }, { collection: "none" }];
  const request = {
    searches: searches.map((fields) => ({ tenant_id, text, collection: "books", ...fields })),
  };
  const { outcomes } = await call(retriever, "BatchSearch", request);
  return outcomes.map(({ response, error }) => error ?? summaryOf(response));
}

async function browsing() {
  const { passages } = await search({ collection: "books", limit: 1 });
  const place = { tenant_id, collection: "books", chunk_id: passages[0].chunk.chunk_id };
  const { chunk, child_ids } = await call(retriever, "GetChunk", place);
  const { node, descendants } = await call(retriever, "GetHierarchy", { ...place, depth: 1 });
  return {
    asked: place.chunk_id,
    same: chunk.content === passages[0].chunk.content,
    metadata: unstruct(chunk.metadata),
    child_ids,
    below: descendants.map((descendant) => descendant.chunk.chunk_id),
    node: node.chunk.chunk_id,
  };
}

async function answer() {
  const events = [];
  const request = { search: { tenant_id, text, collection: "books", limit: 1 } };
  for await (const event of retriever.Answer(request)) events.push(event);
  const { citations, finish_reason, model } = events.at(-1).end;
  return {
    kinds: events.map(({ event }) => event),
    text: events.map((event) => event.text ?? "").join(""),
    cited: citations.map(({ marker, document_id }) => [marker, document_id]),
    finish_reason,
    model,
  };
}

async function deleting() {
  const place = { tenant_id, collection: COLLECTION, document_id: "d0" };
  const { sequence } = await call(indexer, "DeleteDocument", place);
  const filter = { match: { field: "document_id", values: [{ text: "d0" }] } };
  const { passages, exhausted } = await search({
    collection: COLLECTION,
    min_sequence: sequence,
    filter,
  });
  const again = await failure(call(indexer, "DeleteDocument", place));
  return { passages: passages.length, exhausted, again };
}

/** Waits without a deadline for a sequence that never comes and is no exact JavaScript number. */
const sequences = () =>
  failure(
    call(
      retriever,
      "Search",
      { tenant_id, text, collection: "books", min_sequence: input.far },
      { deadline: Infinity },
    ),
  );

const errors = async () => ({
  field: await failure(search({ collection: "books", limit: 0 })),
  missing: await failure(search({ collection: "none" })),
  busy: await too_many_answers(),
});

/** Starts two slow answers, of which the server refuses one, and cancels the other. */
async function too_many_answers() {
  const request = { search: { tenant_id, text: input.slow, collection: "books" } };
  const writing = [retriever.Answer(request), retriever.Answer(request)];
  const endings = writing.map(
    (answer) =>
      new Promise((resolve) => {
        answer.on("data", () => {});
        answer.on("error", (error) => resolve({ code: grpc.status[error.code], details: details(error) }));
        answer.on("end", () => resolve({}));
      }),
  );
  const texts = writing.map(
    (answer) =>
      new Promise((resolve) => answer.on("data", ({ event }) => event === "text" && resolve())),
  );
  const refused = await Promise.race(endings);
  await Promise.race(texts);
  for (const answer of writing) answer.cancel();
  return refused;
}

async function deadlines() {
  const unreachable = { tenant_id, text, collection: "books", min_sequence: "1000000" };
  const began = Date.now();
  const passed = await failure(
    call(retriever, "Search", unreachable, { deadline: Date.now() + 300 }),
  );
  const took_ms = Date.now() - began;
  const cancelled = await new Promise((resolve) => {
    const running = retriever.Search(unreachable, (error) => resolve(grpc.status[error.code]));
    setTimeout(() => running.cancel(), 200);
  });
  return { code: passed.code, took_ms, cancelled };
}

/** Returns the request ids of a call that sends one and of a call that sends none. */
async function request_ids() {
  const id_of = (metadata) =>
    new Promise((resolve, reject) => {
      const running = retriever.GetServerInfo({}, metadata, (error) => error && reject(error));
      running.on("status", (status) => resolve(status.metadata.get("x-request-id")));
    });
  const sent = new grpc.Metadata();
  sent.set("x-request-id", "from-node-4711");
  return { sent: await id_of(sent), generated: await id_of(new grpc.Metadata()) };
}

/** Returns the errors for wrong or missing keys and certificates. */
async function strangers() {
  const refusal = async (access, tenant = tenant_id) => {
    const clients = connect({ ...input, ...access });
    const request = { tenant_id: tenant, text, collection: "books" };
    const refused = await failure(
      call(clients.retriever, "Search", request, { deadline: Date.now() + 60_000 }),
    );
    clients.retriever.close();
    clients.indexer.close();
    return refused;
  };
  return {
    no_key: await refusal({ token: "" }),
    wrong_key: await refusal({ token: input.unknown_key }),
    other_tenant: await refusal({}, input.other_tenant),
    other_authority: await refusal({ ca: input.other_ca }),
    plaintext: await refusal({ ca: "" }),
  };
}

/** Reads a text that is larger than the default message size of gRPC for Node.js. */
async function large() {
  const document = { document_id: "large", text: "A long text, in words. ".repeat(220_000) };
  await call(indexer, "IngestDocument", { tenant_id, document }, { deadline: Date.now() + 60_000 });
  const place = { tenant_id, document_id: "large" };
  const refused = await failure(call(indexer, "GetDocument", { ...place, include_text: true }));
  const parts = [];
  let [start, length] = [0, 1];
  while (start < length) {
    const part = await call(indexer, "GetDocument", { ...place, text_range: { start } });
    parts.push(part.text);
    [start, length] = [part.text_end, part.document.text_bytes];
  }
  return { parts: parts.length, same_text: parts.join("") === document.text, refused };
}

/** Checks health with a client that is created by server reflection. It needs no key. */
async function health() {
  const reflection = new GrpcReflection(input.retriever, credentials(input), CHANNEL);
  const described = await reflection.getDescriptorBySymbol("grpc.health.v1.Health");
  const { Health } = described.getPackageObject({ enums: String }).grpc.health.v1;
  const client = new Health(input.retriever, credentials({ ca: input.ca }), CHANNEL);
  const service = "hrag.v1.RetrieverService";
  const { status } = await call(client, "Check", { service });
  const unknown = await failure(call(client, "Check", { service: "hrag.v1.None" }));
  const watching = client.Watch({ service });
  const watched = await new Promise((resolve) => watching.on("data", resolve));
  watching.on("error", () => {}); // A cancelled call ends with an error.
  watching.cancel();
  reflection.client.close();
  client.close();
  return { checked: status, watched: watched.status, unknown: unknown.code };
}

/** Watches a connection without calls that sends keepalive pings. */
async function idle() {
  const client = new retriever.constructor(input.retriever, credentials(input), {
    "grpc.keepalive_time_ms": input.ping_ms,
    "grpc.keepalive_permit_without_calls": 1,
  });
  await call(client, "GetServerInfo", {});
  const states = [];
  const end = Date.now() + input.idle_ms;
  const channel = client.getChannel();
  while (Date.now() < end) {
    states.push(channel.getConnectivityState(false));
    await pause(100);
  }
  await call(client, "GetServerInfo", {});
  client.close();
  return { states: [...new Set(states)].map((state) => grpc.connectivityState[state]) };
}

/** Runs a part; returns its report, or the stack of its error as `failed`. */
async function outcomeOf(part) {
  try {
    return await part();
  } catch (error) {
    return { failed: error.stack };
  }
}

const PARTS = {
  collections,
  documents,
  stream,
  listing,
  modes,
  batch,
  browsing,
  answer,
  deleting,
  errors,
  deadlines,
  request_ids,
  strangers,
  large,
  health,
};
let waiting;
const resting = outcomeOf(idle); // This part runs in parallel with all others.
const report = {};
for (const [name, part] of Object.entries(PARTS)) {
  report[name] = await outcomeOf(part);
  if (name === "documents") waiting = outcomeOf(sequences);
}
report.idle = await resting;
report.sequences = await waiting;
console.log(JSON.stringify(report));
indexer.close();
retriever.close();
