// Journeys through the published `AgentClient` in Node.
//
//   node journeys.mjs '{"host": "127.0.0.1:8791"}'
//
// Writes one JSON line for each journey: {"name", "ok", "seconds", "error", "frames"}.

import { Backstage, finish, same, words } from "./backstage.mjs";
import { Window } from "./window.mjs";

const given = JSON.parse(process.argv[2]);

const fails = (promise) => promise.then((value) => ({ value }), (error) => error.message);

const CLIENT_TOOLS = [
  { name: "getLocation", description: "Where are you?", parameters: { type: "object", properties: {} } },
];

const journeys = {
  async connect_and_identity({ window, room }) {
    same([window.client.agent, window.client.name], ["stage", room], "identity");
    same(window.identities, [`stage/${room}`], "identities");
    same(window.client.state, { count: 0 }, "state"); // ready means: the state is here, too
    same(window.of("chat_messages")[0], { type: "cf_agent_chat_messages", messages: [], connect: true }, "greeting");
    const stored = await window.http("get-messages");
    same([stored.status, await stored.json()], [200, []], "the conversation over HTTP");
  },

  async send_and_stream({ window, stage }) {
    const id = window.say("5 hold 5");
    await window.until_said(id, words(5));
    await stage.release();
    const done = await window.until_done(id);
    same(window.said(id), words(10), "answer");
    same([done.outcome, done.messageIds.length], ["completed", 1], "end");
    same(window.text, words(10), "stored before it ended");
    const next = window.say("2");
    await window.until_done(next);
    same(window.text, words(10) + words(2), "answers");
    same(window.messages.map((message) => message.role), ["user", "assistant", "user", "assistant"], "roles");
  },

  /** A page that is loaded again is a new client without a memory. */
  async reload_in_the_middle({ window, another, stage }) {
    const id = window.say("5 hold 5 hold 5");
    await window.until_said(id, words(5));
    window.close();
    const again = await another();
    await again.until_said(id, words(5));
    await stage.release();
    await again.until_said(id, words(10));
    await stage.release();
    await again.until_done(id);
    same(again.said(id), words(15), "answer");
    same(again.text, words(15), "stored answer");
  },

  async dropped_socket({ window, stage }) {
    const id = window.say("5 hold 5 hold 5");
    await window.until_said(id, words(5));
    await window.drop();
    await stage.release(); // five words that nobody hears
    await stage.held();
    await window.mend();
    await window.until_said(id, words(10));
    await stage.release();
    const done = await window.until_done(id);
    same([window.said(id), window.text, done.outcome], [words(15), words(15), "completed"], "answer");
    same(window.connection, 2, "connections");
  },

  async dropped_socket_until_the_end({ window, stage }) {
    const id = window.say("5 hold 5");
    await window.until_said(id, words(5));
    await window.drop();
    await stage.release();
    await stage.ended(); // and nobody was there
    const before = window.frames.length;
    await window.mend();
    const since = () => window.frames.slice(before).map((frame) => frame.type.replace("cf_agent_", ""));
    await window.until(() => since().includes("stream_resume_none"));
    same(since(), ["chat_messages", "identity", "state", "mcp_servers", "stream_resume_none"], "greeting");
    same([window.text, window.frames.at(-1).reason], [words(10), "idle"], "stored answer");
  },

  /** Between the offer of a stream and its acceptance nothing of it is sent: it all comes with the replay. */
  async slow_to_accept({ window, another, stage }) {
    const id = window.say("5 hold 5 hold 5");
    await window.until_said(id, words(5));
    const slow = await another({ hesitates: true });
    await stage.release();
    await window.until_said(id, words(10)); // as far as the others are
    same(await slow.client.call("add", [1, 1]), 2, "a call, answered after those words were sent");
    same(slow.of("use_chat_response"), [], "what came uninvited");
    slow.accept(id);
    await slow.until_said(id, words(10));
    await stage.release();
    await slow.until_done(id);
    same([slow.said(id), slow.text], [words(15), words(15)], "answer");
    const never = await another({ hesitates: true }); // nothing to accept any more
    same(never.text, words(15), "stored answer");
  },

  async two_clients({ window, another, stage }) {
    const second = await another();
    const id = window.say("5 hold 5 hold 5");
    await second.until_said(id, words(5));
    same(second.messages.length, 1, "the question is shown to the other");
    const third = await another(); // in the middle
    await third.until_said(id, words(5));
    await stage.release();
    await stage.release();
    for (const one of [window, second, third]) {
      await one.until_done(id);
      same([one.said(id), one.text, one.messages.length], [words(15), words(15), 2], "what each has");
    }
  },

  async cancel({ window, another, stage }) {
    const second = await another();
    const id = window.say("5 hold 5");
    await second.until_said(id, words(5));
    await stage.held();
    second.cancel(id); // anybody may
    for (const one of [window, second]) {
      same((await one.until_done(id)).outcome, "aborted", "outcome");
      same(one.text, words(5), "kept");
    }
    await window.until_done(window.say("2"));
    same(window.text, words(5) + words(2), "and the next one");
  },

  async regenerate({ window, another }) {
    await window.until_done(window.say("take 3"));
    const [question, before] = window.messages;
    same(window.text, `take1 ${words(3)}`, "first answer");
    const second = await another();
    const id = window.request("regenerate-message", [question]);
    for (const one of [window, second]) {
      await one.until_done(id);
      same(one.text, `take2 ${words(3)}`, "second answer");
      same(one.messages.length, 2, "messages");
    }
    if (window.messages[1].id === before.id) throw new Error("the new answer took the place of the old one");
  },

  async server_tool({ window }) {
    const id = window.say("2 echo 3");
    await window.until_done(id);
    same(window.part("output-available").output, { echoed: "hi" }, "result");
    same(window.text, words(5), "answer");
    await window.until_done(window.say("explode 1"));
    same(window.part("output-error").errorText, "tool exploded", "error");
  },

  async client_tool({ window, another, stage }) {
    const second = await another();
    const id = window.say("2 getLocation 2 hold 2", { clientTools: CLIENT_TOOLS });
    for (const one of [window, second]) await one.until_done(id);
    same(window.part("input-available").toolName, "getLocation", "what is asked");
    answer_tool(window, { city: "Lisbon" });
    answer_tool(second, { city: "Porto" }); // too late, whichever of them it is
    const went_on = await window.until(() => window.other(id));
    for (const one of [window, second]) await one.until_said(went_on, words(2, 2));
    same((await stage.held()).takes, 2, "calls of the model");
    await stage.release();
    for (const one of [window, second]) {
      same((await one.until_done(went_on)).continuation, true, "continuation");
      same([one.said(went_on), one.text], [words(4, 2), words(6)], "answer");
      same(one.other(id), went_on, "no other turn");
    }
    const { output } = window.part("output-available");
    same(second.part("output-available").output, output, "result in the other window");
  },

  async approval_accepted({ window, stage }) {
    const id = window.say("2 danger 2 hold 2");
    await window.until_done(id);
    answer_approval(window, true);
    const went_on = await window.until(() => window.other(id));
    await window.until_said(went_on, words(2, 2));
    same(window.part("output-available").output, { did: "x" }, "result");
    await stage.release();
    await window.until_done(went_on);
    same([window.said(went_on), window.text], [words(4, 2), words(6)], "answer");
  },

  async approval_denied({ window, another, stage }) {
    const id = window.say("2 danger 2 hold 2");
    await window.until_done(id);
    const later = await another(); // the question is still there
    await later.until(() => later.part("approval-requested"));
    answer_approval(later, false);
    const went_on = await window.until(() => window.other(id));
    for (const one of [window, later]) await one.until_said(went_on, words(2, 2));
    await stage.release();
    for (const one of [window, later]) {
      await one.until_done(went_on);
      same(one.part("output-denied").approval.approved, false, "answer of the person");
      same([one.said(went_on), one.text], [words(4, 2), words(6)], "answer");
    }
  },

  async error_then_reconnect({ window, another }) {
    const id = window.say("3 fail");
    same((await window.until_done(id)).outcome, "error", "outcome");
    same(window.turn(id).error, "the lights went out", "error");
    await window.drop();
    window.turns.clear();
    await window.mend();
    const second = await another();
    for (const one of [window, second]) {
      const done = await one.until_done(id);
      same([done.error, done.body], [true, "the lights went out"], "error, told again");
      same([one.said(id), one.text], [words(3), words(3)], "what was said");
    }
    await window.until_done(window.say("2"));
    const third = await another(); // now it is forgotten
    await third.until(() => third.of("stream_resume_none").length);
    same([third.turns.size, third.text], [0, words(3) + words(2)], "after the next turn");
  },

  async clear({ window, another, stage }) {
    const second = await another();
    const id = window.say("3 hold 3");
    await second.until_said(id, words(3));
    await stage.held();
    window.clear(); // while it streams
    await second.until(() => second.of("chat_clear").length);
    for (const one of [window, second]) {
      same((await one.until_done(id)).outcome, "aborted", "outcome");
      same(one.messages, [], "messages");
    }
    same(window.of("chat_clear").length, 0, "clears that its sender heard of");
    await window.until_done(window.say("2"));
    const third = await another();
    await third.until(() => third.messages.length);
    same(third.text, words(2), "the conversation from now on");
  },

  async server_started_turn({ window, another, stage }) {
    const second = await another();
    const ended = stage.begin("save", "5 hold 5 hold 5");
    const id = await window.until(() => window.other());
    await window.until_said(id, words(5));
    same(window.messages.map((message) => message.parts[0].text), ["5 hold 5 hold 5"], "question");
    await second.until_said(id, words(5));
    await second.drop();
    await stage.release();
    await stage.held();
    await second.mend();
    await stage.release();
    same(await ended, { status: "completed" }, "result in Python");
    for (const one of [window, second]) {
      const done = await one.until_done(id);
      same([done.outcome, done.messageIds], ["completed", undefined], "end");
      same([one.said(id), one.text], [words(15), words(15)], "answer");
    }
  },

  async submitted_turn({ window, stage }) {
    same(await stage.begin("submit", "3 hold 3"), { status: "pending" }, "submission");
    const id = await window.until(() => window.other());
    await stage.release();
    await window.until_done(id);
    same([window.said(id), window.text], [words(6), words(6)], "answer");
  },

  async state_from_the_server({ window, another, stage }) {
    const second = await another();
    await stage.state({ count: 7, list: [null, "é"] });
    for (const one of [window, second]) {
      await one.until_state({ count: 7, list: [null, "é"] });
      same(one.states.at(-1).source, "server", "source");
    }
    const third = await another();
    same(third.client.state, { count: 7, list: [null, "é"] }, "state of one who comes later");
  },

  async state_from_the_client({ window, another }) {
    const second = await another();
    window.client.setState({ count: 3 });
    await second.until_state({ count: 3 });
    second.client.setState({ count: 4 });
    await window.until_state({ count: 4 });
    same(await window.client.call("read"), { count: 4 }, "state on the server");
    const heard = (one) => one.states.map(({ state, source }) => `${source} ${state.count}`);
    same(heard(window), ["server 0", "client 3", "server 4"], "what the first heard");
    same(heard(second), ["server 0", "server 3", "client 4"], "what the second heard");
    await window.drop();
    window.client.setState({ count: 9 }); // while the line is down
    await window.mend();
    await second.until_state({ count: 9 });
  },

  async state_refused({ window, another }) {
    const [second, reader] = [await another(), await another({ query: { readonly: "1" } })];
    window.client.setState({ count: -1 });
    await window.until(() => window.refusals.length);
    same(window.refusals, ["State update rejected"], "refusals"); // not what the validator said
    reader.client.setState({ count: 5 });
    await reader.until(() => reader.refusals.length);
    same(reader.refusals, ["Connection is readonly"], "refusals of a reader");
    same(await fails(reader.client.call("bump")), "Connection is readonly", "a reader's call");
    same(await reader.client.call("read"), { count: 0 }, "state on the server");
    same(second.states.length, 1, "what the others heard");
    same(await second.client.call("bump"), 1, "a call of somebody who may");
    for (const one of [window, second, reader]) await one.until_state({ count: 1 });
  },

  async callable({ window }) {
    same(await window.client.call("add", [2, 3]), 5, "value");
    same(await window.client.stub.add(20, 22), 42, "value through the stub");
    same((await window.client.call("nothing")) === undefined, true, "no value");
    same(await fails(window.client.call("fail")), "callable failed", "error");
    same(await fails(window.client.call("nope")), "Method nope does not exist", "unknown method");
    same(await fails(window.client.call("hidden")), "Method hidden is not callable", "not callable");
    const at_once = Array.from({ length: 5 }, () => window.client.stub.bump());
    same(await Promise.all(at_once), [1, 2, 3, 4, 5], "calls at the same time");
  },

  async callable_timeout({ window, stage }) {
    const late = fails(window.client.call("wait", [], { timeout: 50 }));
    same(await late, "RPC call to wait timed out after 50ms", "late");
    await stage.answer(); // when nobody waits for it any more
    same(await window.client.call("add", [1, 1]), 2, "the next call");
  },

  async callable_and_a_lost_line({ window, stage }) {
    const broken = fails(window.client.call("wait"));
    await stage.called();
    await window.drop();
    same(await broken, "Connection closed", "a call whose line broke");
    const kept = window.client.call("add", [1, 2]);
    await window.mend();
    same(await kept, 3, "a call made while the line was down");
    await stage.answer(); // to nobody
    same(await window.client.call("add", [3, 4]), 7, "the next call");
  },

  async streaming_callable({ window, stage }) {
    const streams = (method, args = []) => {
      const heard = [];
      const stream = {
        onChunk: (piece) => heard.push(piece),
        onDone: (last) => heard.push({ last: last ?? null }),
        onError: (error) => heard.push({ error }),
      };
      return { heard, ends: fails(window.client.call(method, args, { stream })) };
    };
    const counts = streams("count", [3]);
    same([await counts.ends, counts.heard], [{ value: "done" }, [0, 1, 2, { last: "done" }]], "pieces");
    const breaks = streams("countFail");
    same([await breaks.ends, breaks.heard], ["stream failed", [0, { error: "stream failed" }]], "one that fails");
    const tells = streams("tell");
    await window.until(() => tells.heard.length);
    same(tells.heard, [{ piece: 1 }], "the first piece, before the second is made");
    await stage.answer();
    await tells.ends;
    same(tells.heard, [{ piece: 1 }, { piece: 2 }, { last: null }], "pieces");
  },
};

function answer_tool(window, output) {
  const { toolCallId } = window.messages.flatMap((message) => message.parts).find((part) => part.toolCallId);
  const answer = { toolCallId, toolName: "getLocation", output, autoContinue: true, clientTools: CLIENT_TOOLS };
  window.send({ type: "cf_agent_tool_result", ...answer });
}

function answer_approval(window, approved) {
  const { toolCallId } = window.part("approval-requested");
  window.send({ type: "cf_agent_tool_approval", toolCallId, approved, autoContinue: true });
}

async function travel(name) {
  const began = performance.now();
  const room = `node-${name.replaceAll("_", "-")}-${process.pid}`;
  const windows = [];
  const another = async (options) => {
    const window = new Window(given.host, room, options);
    windows.push(window);
    await window.connected();
    return window;
  };
  const result = { name, ok: true };
  try {
    await journeys[name]({ window: await another(), another, room, stage: new Backstage(`http://${given.host}`, room) });
    for (const window of windows) await window.check();
  } catch (error) {
    result.ok = false;
    result.error = String(error.stack ?? error).slice(0, 3000);
    result.frames = windows.map(({ frames }) => frames.slice(-60).map((frame) => JSON.stringify(frame).slice(0, 400)));
  }
  for (const window of windows) window.close();
  result.seconds = Math.round(performance.now() - began) / 1000;
  console.log(JSON.stringify(result));
  return result.ok;
}

finish(await Promise.all((given.only ?? Object.keys(journeys)).map(travel)));
