// Journeys through the published MCP client in Node.
//
//   node journeys.mjs '{"url": "http://127.0.0.1:8791/mcp"}'
//
// Writes one JSON line for each journey: {"name", "ok", "error", "frames"}.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { url } = JSON.parse(process.argv[2]);

/** A client that has introduced itself, and everything that it was sent. */
async function connected(frames, token = "ada") {
  const headers = token === null ? {} : { "X-Token": token };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  const client = new Client({ name: "journeys", version: "1" });
  await client.connect(transport);
  const receive = transport.onmessage;
  transport.onmessage = (message, extra) => {
    frames.push(JSON.stringify(message));
    receive?.(message, extra);
  };
  return client;
}

const ask = (client, args, options) => client.callTool({ name: "ask_stage", arguments: args }, undefined, options);
const texts = (result) => result.content.map((part) => part.text);
const fails = (promise) => promise.then((value) => assert.fail(`it gave ${JSON.stringify(value)}`), (error) => error);

const journeys = {
  async tools_are_listed({ client }) {
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map((tool) => tool.name), ["ask_stage", "stage_add"]);
    assert.match(tools[0].description, /^Says things back\./);
  },

  async an_answer_and_its_words({ client }) {
    let words = "";
    const onprogress = (progress) => (words += progress.message ?? "");
    const result = await ask(client, { message: "good morning" }, { onprogress });
    assert.equal(texts(result)[0], "good morning ");
    assert.equal(words, "good morning ");
    assert.equal(result.structuredContent.status, "completed");
    const { conversation } = result.structuredContent;
    const again = await ask(client, { conversation });
    assert.deepEqual(texts(again), ["good morning "]);
  },

  async an_approval_that_waits({ client }) {
    const result = await ask(client, { message: "ask", conversation: "waits" });
    assert.equal(result.structuredContent.status, "waiting");
    assert.equal(result.structuredContent.waits_for[0].tool, "postcard");
    assert.match(texts(result)[1], /waits until a person allows it/);
    assert.ok(!result.isError);
  },

  async an_agent_that_fails({ client }) {
    const result = await ask(client, { message: "break", conversation: "breaks" });
    assert.ok(result.isError);
    assert.match(texts(result)[1], /^This did not work: /);
  },

  async a_method({ client }) {
    const result = await client.callTool({ name: "stage_add", arguments: { name: "x", a: 1, b: 2 } });
    assert.deepEqual(result.structuredContent, { result: 3 });
  },

  async a_request_that_is_cancelled({ client }) {
    const stop = new AbortController();
    const onprogress = (progress) => progress.message && stop.abort("enough");
    await fails(ask(client, { message: "wait", conversation: "stops" }, { onprogress, signal: stop.signal }));
    const after = await ask(client, { message: "and now?", conversation: "stops" });
    assert.deepEqual(texts(after), ["and now? "]);
  },

  async two_at_once({ client, another }) {
    const other = await another();
    const asked = ["one", "two"].map((message, i) => ask([client, other][i], { message, conversation: "both" }));
    const said = (await Promise.all(asked)).map((result) => texts(result)[0]);
    assert.deepEqual(said, ["one ", "two "]);
  },

  async nobody({ another }) {
    assert.match((await fails(another(null))).message, /401|Unauthorized/);
  },

  async a_conversation_of_others({ client }) {
    const error = await fails(ask(client, { message: "hi", conversation: "secret" }));
    assert.match(error.message, /403|Forbidden/);
  },

  async a_tool_that_there_is_not({ client }) {
    const error = await fails(client.callTool({ name: "ask_stag", arguments: {} }));
    assert.match(error.message, /Did you mean 'ask_stage'\?/);
  },
};

for (const [name, journey] of Object.entries(journeys)) {
  const frames = [];
  const open = [];
  const another = async (token) => {
    const client = await connected(frames, token);
    open.push(client);
    return client;
  };
  let error;
  try {
    await journey({ client: await another(), another });
  } catch (raised) {
    error = String(raised.stack ?? raised);
  }
  for (const client of open) await client.close();
  console.log(JSON.stringify({ name, ok: error === undefined, error, frames: [frames.slice(-10)] }));
}
