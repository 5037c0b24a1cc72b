// Calls the gateway: unary methods in the Connect protocol with JSON, and answers as server-sent
// events. The API key is stored only in this module's memory and sent only in the header
// `authorization`.

import { serverSentEvents } from "./event_stream.js";

let key = "";

export function setKey(value) {
  key = value;
}

export function hasKey() {
  return key !== "";
}

/** Returns true if a text contains the API key, also with the escapes of `search_address.js`. */
export function containsKey(text) {
  const escaped = key.replaceAll("%", "%25").replaceAll("~", "%7E");
  return hasKey() && (text.includes(key) || text.includes(escaped));
}

/**
 * The error of a call. `code` is a code of the Connect protocol, or `unreachable` if the gateway
 * sent no complete reply.
 */
export class CallError extends Error {
  constructor({ code = "unknown", message = "", details = [] }) {
    super(message);
    this.code = code;
    this.details = details.map(({ debug }) => debug).filter(Boolean);
  }

  /** The stable reason of the error, for example `REPLY_TOO_LARGE`; empty if the error has none. */
  get reason() {
    return this.details.find(({ reason }) => reason)?.reason ?? "";
  }

  /** The field of the request that caused the error; empty if the error names no field. */
  get field() {
    return (
      this.details.find(({ fieldViolations }) => fieldViolations)?.fieldViolations[0].field ?? ""
    );
  }
}

/** Calls a unary method, for example `RetrieverService/Search`; returns its response. */
export async function call(method, request, signal) {
  try {
    const response = await send(method, request, "application/json", signal);
    return body(await response.text());
  } catch (error) {
    throw callError(error);
  }
}

/**
 * Calls `Answer`; yields the name and the value of each event as `{ name, value }`. Raises
 * CallError for an event `error`, and if the stream ends without the event `end`.
 */
export async function* answerEvents(request, signal) {
  let hasEnded = false;
  try {
    const response = await send("RetrieverService/Answer", request, "text/event-stream", signal);
    for await (const { name, data } of serverSentEvents(response.body)) {
      if (name === "error") throw new CallError(body(data));
      hasEnded = name === "end";
      yield { name, value: body(data) };
    }
  } catch (error) {
    throw callError(error);
  }
  if (!hasEnded) throw unreachable("the answer ended early");
}

/**
 * Calls `IngestDocument`; returns its response. Meanwhile calls `progress` with the share of the
 * request that is sent, from 0 to 1.
 */
export async function ingest(request, progress) {
  const { status, responseText } = await upload(request, progress);
  if (status !== 200) throw failure(responseText, status);
  return body(responseText);
}

function upload(request, progress) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("POST", address("IndexerService/IngestDocument"));
    for (const [name, value] of Object.entries(headers("application/json")))
      sending.setRequestHeader(name, value);
    sending.upload.onprogress = ({ loaded, total }) => progress(loaded / total);
    sending.onerror = () => reject(unreachable(""));
    sending.onload = () => resolve(sending);
    sending.send(JSON.stringify(request));
  });
}

async function send(method, request, accept, signal) {
  const response = await fetch(address(method), {
    method: "POST",
    headers: headers(accept),
    body: JSON.stringify(request),
    credentials: "omit",
    signal,
  });
  if (!response.ok) throw failure(await response.text(), response.status);
  return response;
}

function address(method) {
  return `hrag.v1.${method}`;
}

function headers(accept) {
  const always = {
    "Content-Type": "application/json",
    Accept: accept,
    "Connect-Protocol-Version": "1",
  };
  return key ? { ...always, Authorization: `Bearer ${key}` } : always;
}

function body(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw unreachable(text.slice(0, 200));
  }
}

function failure(text, status) {
  try {
    return new CallError(JSON.parse(text));
  } catch {
    return unreachable(`HTTP ${status}`);
  }
}

/**
 * Converts a TypeError to a CallError with the code `unreachable`, because browsers raise TypeError
 * if a connection fails, also in the middle of a reply. Returns any other error unchanged.
 */
function callError(error) {
  return error instanceof TypeError ? unreachable(error.message) : error;
}

function unreachable(message) {
  return new CallError({ code: "unreachable", message });
}
