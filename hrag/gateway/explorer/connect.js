// Calls of the gateway: the Connect protocol's unary JSON, answers as server-sent events. The API
// key lives in this module's memory and travels in the `authorization` header alone.

import { serverSentEvents } from "./event_stream.js";

let key = "";

export function setKey(value) {
  key = value;
}

export function hasKey() {
  return key !== "";
}

/** Why a call failed: a Connect code, or `unreachable` where there was no reply of the gateway. */
export class CallError extends Error {
  constructor({ code = "unknown", message = "", details = [] }) {
    super(message);
    this.code = code;
    this.details = details.map(({ debug }) => debug).filter(Boolean);
  }

  /** The stable reason, for example `REPLY_TOO_LARGE`; empty if there is none. */
  get reason() {
    return this.details.find(({ reason }) => reason)?.reason ?? "";
  }

  /** The field of the request that is wrong; empty if it is none. */
  get field() {
    return (
      this.details.find(({ fieldViolations }) => fieldViolations)?.fieldViolations[0].field ?? ""
    );
  }
}

/** Calls a unary method such as `RetrieverService/Search`; returns the response. */
export async function call(method, request, signal) {
  const response = await send(method, request, "application/json", signal);
  return body(await response.text());
}

/** Calls `Answer`; yields `{ name, value }` for each event. */
export async function* answerEvents(request, signal) {
  const response = await send("RetrieverService/Answer", request, "text/event-stream", signal);
  try {
    for await (const { name, data } of serverSentEvents(response.body)) {
      if (name === "error") throw new CallError(body(data));
      yield { name, value: body(data) };
    }
  } catch (error) {
    throw error instanceof TypeError ? unreachable(error) : error;
  }
}

/** Calls `IngestDocument`; tells `progress` which share of the request has been sent. */
export function ingest(request, progress) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("POST", address("IndexerService/IngestDocument"));
    for (const [name, value] of Object.entries(headers("application/json")))
      sending.setRequestHeader(name, value);
    sending.upload.onprogress = ({ loaded, total }) => progress(loaded / total);
    sending.onerror = () => reject(unreachable(new Error("")));
    sending.onload = () => {
      if (sending.status === 200) resolve(body(sending.responseText));
      else reject(failure(sending.responseText, sending.status));
    };
    sending.send(JSON.stringify(request));
  });
}

async function send(method, request, accept, signal) {
  let response;
  try {
    response = await fetch(address(method), {
      method: "POST",
      headers: headers(accept),
      body: JSON.stringify(request),
      credentials: "omit",
      signal,
    });
  } catch (error) {
    throw error instanceof TypeError ? unreachable(error) : error;
  }
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
    throw new CallError({ code: "unreachable", message: text.slice(0, 200) });
  }
}

function failure(text, status) {
  try {
    return new CallError(JSON.parse(text));
  } catch {
    return new CallError({ code: "unreachable", message: `HTTP ${status}` });
  }
}

function unreachable(error) {
  return new CallError({ code: "unreachable", message: error.message });
}
