// Families in a page of the published hooks, while servers come and go.
//
//   node journeys.mjs '{"chromium": "ws://127.0.0.1:9222/…", "cwd": "…", "servers": {"live": {…}}}'
//
// Writes one JSON line for each journey: {"name", "ok", "error", "shown", "frames"}.

import { spawn } from "node:child_process";
import { chromium } from "playwright-core";
import { finish, same, words } from "./backstage.mjs";
import { Tab } from "./tab.mjs";

const given = JSON.parse(process.argv[2]);
const RUN = "agent-tool:call-0-0";
const OTHER = "agent-tool:call-0-1";

/** A server that can be killed and comes back with the same database. */
class Server {
  constructor({ base, command }) {
    this.base = base;
    this.command = command;
  }
  async start() {
    const [program, ...rest] = this.command;
    this.process = spawn(program, rest, { cwd: given.cwd, stdio: ["ignore", "ignore", "inherit"] });
    while (this.process.exitCode === null) {
      if (await fetch(`${this.base}/index.html`).then((answer) => answer.ok, () => false)) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error("the server ended");
  }
  async kill() {
    if (!this.process || this.process.exitCode !== null || this.process.signalCode !== null) return;
    const gone = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGKILL");
    await gone;
  }
}

/** A tab that notes what it is told of runs, and on which socket. */
class Family extends Tab {
  constructor(page, base, room) {
    super(page, base, room);
    this.events = [];
    let sockets = 0;
    page.on("websocket", (socket) => {
      const line = ++sockets;
      socket.on("framereceived", ({ payload }) => {
        if (!String(payload).startsWith('{"type":"agent-tool-event"')) return;
        const { sequence, event, replay = false } = JSON.parse(payload);
        this.events.push({ line, sequence, run: event.runId, kind: event.kind, replay, body: event.body });
      });
    });
  }

  /** A cue, over the child's own address. */
  async post(what, run = RUN) {
    const path = `agents/assistant/${this.room}/sub/researcher/${encodeURIComponent(run)}/${what}`;
    const answer = await fetch(`${this.base}/${path}`, { method: "POST", signal: AbortSignal.timeout(30_000) });
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    same((await answer.json()).name, run, "the name of the child");
  }
  release = (run) => this.post("release", run);
  held = (run) => this.post("held", run);

  run = (text, run = RUN) =>
    this.until(([run, text]) => document.querySelector(`[data-run="${run}"]`)?.textContent === text, [run, text]);
  ends = (state, run = RUN) => this.page.locator(`[data-run="${run}"][data-state="${state}"]`).waitFor();
  drill = async (run = RUN) => {
    await this.page.locator(`[data-run="${run}"]`).click();
    await this.page.locator(`section[data-within="${run}"][data-line="open"]`).waitFor();
  };
  within = (text) =>
    this.until((text) => {
      const said = [...document.querySelectorAll('section [data-said="assistant"]')];
      return said.map((one) => one.textContent).join("|") === text;
    }, text);

  /** At no moment did a run show anything but a beginning of this text. */
  async run_showed_only(text, run = RUN) {
    for (const shown of (await this.told("shown"))[run]) {
      if (!text.startsWith(shown)) throw new Error(`the run once showed ${JSON.stringify(shown)}`);
    }
  }

  of(run) {
    return this.events.filter((event) => event.run === run);
  }

  /** On each line every piece of the run came once and in order, and it began once. */
  told_in_order(run = RUN) {
    for (const line of new Set(this.of(run).map((event) => event.line))) {
      const numbers = this.of(run).filter((event) => event.line === line).map((event) => event.sequence);
      same(numbers, numbers.map((_, i) => i), "numbers on one line");
    }
    const live = this.of(run).filter((event) => !event.replay);
    same(live.filter((event) => event.kind === "started").length <= 1, true, "a live start");
    const numbers = live.map((event) => event.sequence);
    same(numbers, [...new Set(numbers)].sort((a, b) => a - b), "live numbers");
    const bodies = new Map();
    for (const { sequence, kind, body = "" } of this.of(run)) {
      const known = bodies.get(sequence);
      if (known !== undefined) same(`${kind} ${body}`, known, `piece ${sequence}`);
      bodies.set(sequence, `${kind} ${body}`);
    }
  }
}

const journeys = {
  async live({ tab }) {
    await tab.say("ask 5 hold 5");
    await tab.run(words(5));
    await tab.ends("running");
    await tab.release();
    await tab.ends("completed");
    await tab.reads("1 answered.", "the answer");
    await tab.quiet();
    await tab.run(words(10));
    await tab.run_showed_only(words(10));
    const runs = await tab.use(() => hooks.runs.getRunsForToolCall("call-0-0"));
    same(runs.map((run) => [run.agentType, run.display.name, run.summary]), [["Researcher", "Researcher", words(10)]], "runs");
    tab.told_in_order();
  },

  async reload_in_mid_run({ tab }) {
    await tab.say("ask 5 hold 5 hold 5");
    await tab.run(words(5));
    await tab.reload();
    await tab.run(words(5)); // told again
    await tab.release();
    await tab.run(words(10)); // told live
    await tab.reload();
    await tab.run(words(10));
    await tab.release();
    await tab.ends("completed");
    await tab.run(words(15));
    await tab.reads("1 answered.", "the answer");
    await tab.run_showed_only(words(15));
    tab.told_in_order();
    await tab.reload();
    await tab.ends("completed");
    await tab.run(words(15));
  },

  async drill_in_while_it_runs({ tab }) {
    await tab.say("ask 5 hold 5");
    await tab.run(words(5));
    await tab.drill();
    same([...new Set(await tab.told("identities"))], [`researcher/${RUN}`], "identities");
    await tab.within(words(5));
    same(await tab.page.locator('section [data-said="user"]').allTextContents(), ["5 hold 5"], "the question");
    await tab.release();
    await tab.within(words(10));
    await tab.ends("completed");
    await tab.run(words(10));
    await tab.reads("1 answered.", "the answer");
    // The child has a conversation of its own, which its parent's run is not a part of.
    await tab.use(() => void within.chat.sendMessage({ text: "2" }));
    await tab.within(`${words(10)}|${words(2)}`);
    await tab.run(words(10));
    same(await tab.answers().count(), 1, "answers of the parent");
    for (const shown of await tab.told("within")) {
      if (!`${words(10)}|${words(2)}`.startsWith(shown)) throw new Error(`the child once showed ${JSON.stringify(shown)}`);
    }
    tab.told_in_order();
  },

  async stop({ tab }) {
    await tab.say("ask 5 hold 5");
    await tab.run(words(5));
    await tab.drill();
    await tab.within(words(5));
    await tab.use(() => hooks.chat.stop());
    await tab.ends("aborted");
    await tab.quiet();
    await tab.page.locator('section[data-status="ready"]').waitFor(); // the child is stopped, too
    await tab.within(words(5));
    await tab.reload();
    await tab.ends("aborted");
    await tab.run(words(5));
    tab.told_in_order();
  },

  async killed_in_mid_run({ tab, server }) {
    await tab.say("ask 5 hold 5");
    await tab.run(words(5));
    const before = tab.of(RUN).at(-1);
    same(before.replay, false, "told again");
    await server.kill();
    await server.start();
    await tab.connected();
    await tab.held();
    await tab.run(words(5));
    await tab.release();
    await tab.ends("completed");
    await tab.run(words(10));
    await tab.reads("1 answered.", "the answer");
    await tab.quiet();
    await tab.run_showed_only(words(10));
    tab.told_in_order();
    const live = tab.of(RUN).filter((event) => !event.replay && event.line > before.line);
    same(live[0].sequence, before.sequence + 1, "the first number after the restart");
    same(live.filter((event) => event.kind === "started"), [], "a second start");
    await tab.reload();
    await tab.ends("completed");
    await tab.run(words(10));
    tab.told_in_order();
  },

  async killed_with_the_child_open({ tab, server }) {
    await tab.say("ask 5 hold 5");
    await tab.run(words(5));
    await tab.drill();
    await tab.within(words(5));
    await server.kill();
    await server.start();
    await tab.connected();
    await tab.held();
    await tab.release();
    await tab.within(words(10));
    await tab.ends("completed");
    await tab.run(words(10));
    await tab.reads("1 answered.", "the answer");
    tab.told_in_order();
  },

  async killed_with_two_at_once({ tab, server }) {
    await tab.say("ask 3 hold 3 & 4 hold 4");
    await tab.run(words(3));
    await tab.run(words(4), OTHER);
    await tab.release(OTHER);
    await tab.ends("completed", OTHER);
    await server.kill();
    await server.start();
    await tab.connected();
    await tab.held();
    await tab.run(words(8), OTHER);
    await tab.release();
    await tab.ends("completed");
    await tab.run(words(6));
    await tab.reads("2 answered.", "the answer");
    await tab.run_showed_only(words(6));
    await tab.run_showed_only(words(8), OTHER);
    tab.told_in_order();
    tab.told_in_order(OTHER);
  },
};

async function travel(browser, name) {
  const server = new Server(given.servers[name]);
  const context = await browser.newContext();
  context.setDefaultTimeout(given.timeout ?? 30_000);
  const tab = new Family(await context.newPage(), server.base, name.replaceAll("_", "-"));
  const result = { name, ok: true };
  try {
    await server.start();
    await tab.open();
    await journeys[name]({ tab, server });
    // While there is no server, browsers say so.
    const troubles = tab.troubles.filter((text) => !/WebSocket connection to|ERR_CONNECTION|Failed to fetch/.test(text));
    if (troubles.length) throw new Error(`on the console: ${troubles.join("\n")}`);
  } catch (error) {
    result.ok = false;
    result.error = String(error.stack ?? error).slice(0, 3000);
    result.shown = await tab.page.innerHTML("#root").catch(String);
    result.frames = [tab.frames.slice(-60)];
  }
  await context.close().catch(() => {});
  await server.kill();
  console.log(JSON.stringify(result));
  return result.ok;
}

const browser = await chromium.connect(given.chromium);
const waiting = [...(given.only ?? Object.keys(journeys))];
const went = [];
const worker = async () => {
  for (let name = waiting.shift(); name; name = waiting.shift()) went.push(await travel(browser, name));
};
await Promise.all([worker(), worker()]);
await browser.close();
finish(went);
