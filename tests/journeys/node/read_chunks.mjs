// What a browser makes of our chunks. Reads a list of streams (lists of chunks) as JSON from stdin and
// writes, for each stream, the chunks its schema refuses and the message the browser's own fold ends with.

import { readUIMessageStream, uiMessageChunkSchema } from "ai";

async function text(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces).toString("utf8");
}

async function refusals(chunks) {
  const schema = uiMessageChunkSchema();
  const found = [];
  for (const chunk of chunks) {
    const result = await schema.validate(chunk);
    if (!result.success) found.push({ chunk, why: String(result.error) });
  }
  return found;
}

async function fold(chunks) {
  const errors = [];
  const stream = new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  let last = null;
  for await (const message of readUIMessageStream({ stream, onError: (error) => errors.push(String(error)) })) {
    last = message;
  }
  return { message: last, errors };
}

const results = [];
for (const { chunks, folds } of JSON.parse(await text(process.stdin))) {
  results.push({ refused: await refusals(chunks), ...(folds ? await fold(chunks) : {}) });
}
process.stdout.write(JSON.stringify(results));
