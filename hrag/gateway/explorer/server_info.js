// What the server says about itself and the caller, read once for each key: its limits and
// defaults, and the role of the caller.

import { call } from "./connect.js";

let reading = null;

/** Returns the response of GetServerInfo. A call that fails is repeated the next time. */
export function serverInfo() {
  if (!reading) {
    const started = call("RetrieverService/GetServerInfo", {}).catch((error) => {
      if (reading === started) reading = null;
      throw error;
    });
    reading = started;
  }
  return reading;
}

/** Makes the next call of `serverInfo` read again, because the key of the caller has changed. */
export function forgetServerInfo() {
  reading = null;
}
