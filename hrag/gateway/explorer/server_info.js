// What the server says about itself, read once: its limits and defaults.

import { call } from "./connect.js";

let reading = null;

/** Returns the response of GetServerInfo. A call that fails is repeated the next time. */
export function serverInfo() {
  reading ??= call("RetrieverService/GetServerInfo", {}).catch((error) => {
    reading = null;
    throw error;
  });
  return reading;
}
