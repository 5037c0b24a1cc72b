// Reads the server-sent events of a response while it arrives.

/** Yields `{ name, data }` for each event of a stream of bytes. */
export async function* serverSentEvents(stream) {
  let event = { name: "message", data: [] };
  for await (const line of lines(stream)) {
    if (line === "") {
      if (event.data.length) yield { name: event.name, data: event.data.join("\n") };
      event = { name: "message", data: [] };
    } else {
      addField(event, line);
    }
  }
}

function addField(event, line) {
  const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
  if (name === "event") event.name = value;
  else if (name === "data") event.data.push(value);
}

/** Yields whole lines. The pieces of the stream may end anywhere, also inside a character. */
async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const complete = (rest + value).split(/\r\n|\n/);
      rest = complete.pop();
      yield* complete;
    }
  } finally {
    await reader.cancel();
  }
}
