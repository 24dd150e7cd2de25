// The page while its server is killed again and again.
//
//   node journeys.mjs '{"chromium": "ws://127.0.0.1:9222/…", "cwd": "…", "servers": {"streaming": {…}}}'
//
// Writes one JSON line for each journey: {"name", "ok", "error"}.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";
import { given, pause, same, Tab, words } from "./tab.mjs";

const WHOLE = words(70);

/** A server that can be killed and comes back with the same database. */
class Server {
  constructor(of) {
    this.of = of;
  }
  async start() {
    const [program, ...rest] = this.of.command;
    this.process = spawn(program, rest, { cwd: given.cwd, stdio: "ignore" });
    for (let i = 0; i < 400; i++) {
      if (await fetch(`${this.of.page}/index.html`).then((answer) => answer.ok, () => false)) return;
      await pause(50);
    }
    throw new Error("the server did not start");
  }
  async kill() {
    const gone = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGKILL");
    await gone;
  }
  get notes() {
    try {
      return readFileSync(this.of.notes, "utf8");
    } catch {
      return "";
    }
  }
}

const recovering = (tab) => tab.page.getByRole("status").getByText("Recovering an interrupted answer").waitFor();

/** Every text the answer had, as somebody who looks all the time would see it. */
async function watched(tab) {
  await tab.page.evaluate(() => {
    window.seen = [];
    const look = () => {
      const answer = [...document.querySelectorAll('[data-role="assistant"]')].at(-1);
      const text = answer ? [...answer.querySelectorAll(":scope > .prose")].map((one) => one.textContent.trim()).join(" | ") : "";
      if (window.seen.at(-1) !== text) window.seen.push(text);
    };
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
  });
}

async function oneWholeAnswer(tab) {
  await tab.quiet();
  same(await tab.prose(), WHOLE, "answer");
  same(await tab.answers.count(), 1, "answers");
  same(await tab.page.getByRole("alert").count(), 0, "alerts");
  const odd = (await tab.page.evaluate(() => window.seen)).filter((text) => !given.whole.startsWith(text));
  same(odd.join("\n"), "", "texts that are no beginning of the answer");
  await tab.reload();
  await tab.quiet();
  same(await tab.prose(), WHOLE, "answer after a reload");
  same(await tab.answers.count(), 1, "answers after a reload");
}

const journeys = {
  async while_text_streams({ tab, server }) {
    await tab.say("tell");
    await tab.shows(/w6/);
    await server.kill();
    await server.start();
    await recovering(tab);
    await oneWholeAnswer(tab);
  },

  async while_a_tool_runs({ tab, server }) {
    await tab.say("note it");
    while (!server.notes) await pause(20);
    await server.kill();
    await server.start();
    await recovering(tab);
    await oneWholeAnswer(tab);
    same(server.notes, "it\n", "what the tool has done");
    same(await tab.tool("note", "output-error").count(), 1, "calls that say they were cut off");
  },

  async before_the_first_chunk({ tab, server }) {
    await tab.say("think first");
    await pause(400);
    await server.kill();
    await server.start();
    await recovering(tab);
    await oneWholeAnswer(tab);
  },

  async during_recovery_itself({ tab, server }) {
    await tab.say("tell");
    await tab.shows(/w4/);
    await server.kill();
    await server.start();
    await recovering(tab);
    await server.kill();
    await server.start();
    await recovering(tab);
    await oneWholeAnswer(tab);
  },

  async three_times_in_a_row({ tab, server }) {
    await tab.say("tell");
    for (const word of [/w3/, /w9/, /w15/]) {
      await tab.shows(word);
      await server.kill();
      await server.start();
    }
    await oneWholeAnswer(tab);
  },
};

async function travel(browser, name) {
  const result = { name, ok: true };
  const server = new Server(given.servers[name]);
  const context = await browser.newContext({ reducedMotion: "reduce" });
  context.setDefaultTimeout(60_000);
  const tab = new Tab(await context.newPage());
  try {
    await server.start();
    await tab.open(server.of.page, "clerk", name);
    await watched(tab);
    await journeys[name]({ tab, server });
  } catch (error) {
    result.ok = false;
    result.error = String(error.stack ?? error).slice(0, 3000);
    result.shown = await tab.page.innerText("body").catch(() => "");
    result.frames = [tab.frames.slice(-60)];
  }
  await context.close().catch(() => {});
  await server.kill().catch(() => {});
  console.log(JSON.stringify(result));
}

const browser = await chromium.connect(given.chromium);
const waiting = Object.keys(journeys);
const worker = async () => {
  for (let name = waiting.shift(); name; name = waiting.shift()) await travel(browser, name);
};
await Promise.all([worker(), worker()]);
await browser.close();
