// Journeys through the page in headless Chromium.
//
//   node journeys.mjs '{"page": "http://127.0.0.1:8791", "chromium": "/usr/bin/chromium", ...}'
//
// Writes one JSON line for each journey: {"name", "ok", "seconds", "error", "frames"}.

import { spawn } from "node:child_process";
import { setTimeout as pause } from "node:timers/promises";
import { chromium } from "playwright-core";

const given = JSON.parse(process.argv[2]);
const FLAGS = [
  "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run",
  "--disable-background-networking --disable-component-update --disable-sync",
].flatMap((line) => line.split(" "));

const words = (count, from = 0) => Array.from({ length: count }, (_, i) => `w${i + from}`).join(" ");
const same = (found, expected, what) => {
  if (found !== expected) throw new Error(`${what}: ${JSON.stringify(found)} is not ${JSON.stringify(expected)}`);
};

/** A tab, in the words of someone who uses it. */
class Tab {
  constructor(page) {
    this.page = page;
    this.frames = [];
    this.troubles = [];
    page.on("pageerror", (error) => this.troubles.push(String(error)));
    page.on("console", (message) => message.type() === "error" && this.troubles.push(message.text()));
    page.on("websocket", (socket) => {
      socket.on("framesent", ({ payload }) => this.frames.push(`> ${String(payload).slice(0, 400)}`));
      socket.on("framereceived", ({ payload }) => this.frames.push(`< ${String(payload).slice(0, 400)}`));
    });
  }

  async open(base, agent, name, more = "") {
    await this.page.goto(`${base}/?agent=${agent}&name=${name}${more}`);
    await this.connected();
  }

  async connected() {
    await this.page.locator('.connection[data-line="open"]').waitFor();
  }

  async reload() {
    await this.page.reload();
    await this.connected();
  }

  async say(text) {
    const field = this.page.getByLabel("Message", { exact: true });
    await field.fill(text);
    await field.press("Enter");
  }

  button(name) {
    return this.page.getByRole("button", { name, exact: true });
  }

  get answers() {
    return this.page.locator('[data-role="assistant"]');
  }

  /** The prose of the newest answer, thoughts left out. */
  async prose() {
    return this.answers.last().evaluate((node) =>
      [...node.querySelectorAll(":scope > .prose")].map((one) => one.textContent.trim()).join(" | "),
    );
  }

  async shows(text) {
    await this.answers.last().getByText(text).last().waitFor();
  }

  /** Nothing runs and nothing is said about it. */
  async quiet() {
    await this.button("Send").waitFor();
    await this.page.locator('.notice[data-status="ready"]').waitFor();
  }

  tool(name, state) {
    return this.page.locator(`[data-tool="${name}"][data-state="${state}"]`);
  }
}

const journeys = {
  async send_and_stream({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("text 20 20");
    await tab.shows(/w2 /);
    await tab.button("Stop").waitFor();
    await tab.quiet();
    same(await tab.prose(), words(20), "answer");
    same(await tab.answers.count(), 1, "answers");
    await tab.say("text 3");
    await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 2);
    await tab.quiet();
    same(await tab.prose(), words(3), "second answer");
    same(await tab.page.title(), "text 20 20 · ThinkPeer", "title");
  },

  async reload_in_the_middle({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    // Six seconds: long enough to be still streaming when a slow machine has reloaded the page.
    await tab.say("text 150 40");
    await tab.shows(/w8 /);
    await tab.reload();
    await tab.shows(/w12 /);
    await tab.button("Stop").waitFor();
    await tab.quiet();
    same(await tab.prose(), words(150), "answer");
    same(await tab.answers.count(), 1, "answers");
    await tab.reload();
    same(await tab.prose(), words(150), "stored answer");
  },

  async dropped_socket({ tab, room }) {
    let drop = () => {};
    let refuse = false;
    await tab.page.routeWebSocket(/\/agents\//, (socket) => {
      if (refuse) return socket.close({ code: 1012 });
      const server = socket.connectToServer();
      drop = () => {
        server.close();
        return socket.close({ code: 1012 });
      };
    });
    await tab.open(given.page, "think-peer", room);
    await tab.say("text 60 60");
    await tab.shows(/w6 /);
    refuse = true;
    await drop();
    await tab.page.getByRole("status").getByText("Reconnecting").waitFor();
    await picture(tab, "reconnecting");
    refuse = false;
    await tab.connected();
    await tab.quiet();
    same(await tab.prose(), words(60), "answer");
    same(await tab.answers.count(), 1, "answers");
    same(await tab.page.getByRole("alert").count(), 0, "alerts");
  },

  async two_tabs({ tab, another, room }) {
    await tab.open(given.page, "think-peer", room);
    const second = await another();
    await second.open(given.page, "think-peer", room);
    await tab.say("text 100 40");
    await second.shows(/w5 /);
    await second.button("Stop").waitFor();
    await Promise.all([tab.quiet(), second.quiet()]);
    for (const one of [tab, second]) {
      same(await one.prose(), words(100), "answer");
      same(await one.answers.count(), 1, "answers");
      same(await one.page.locator('[data-role="user"]').count(), 1, "questions");
    }
    // The one that only watches may stop it, too.
    await tab.say("text 200 40");
    await second.shows(/w3 /);
    await second.button("Stop").click();
    await Promise.all([tab.quiet(), second.quiet()]);
    const stopped = await tab.prose();
    if (stopped.includes("w150")) throw new Error("the turn was not stopped");
    same(await second.prose(), stopped, "what both have");
  },

  async stop({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("text 200 30");
    await tab.shows(/w5 /);
    await tab.button("Stop").click();
    await tab.quiet();
    await pause(300);
    const text = await tab.prose();
    if (!text.startsWith("w0 w1 w2 w3 w4 w5") || text.includes("w100")) throw new Error(`stopped with ${text}`);
    same(await tab.answers.count(), 1, "answers");
    await tab.reload();
    await tab.shows(/w5/);
    const kept = await tab.prose();
    if (!kept.startsWith(text)) throw new Error(`kept ${kept}, shown before ${text}`);
    await tab.say("text 2");
    await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 2);
    await tab.quiet();
    same(await tab.prose(), words(2), "next answer");
  },

  async regenerate({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("text 4 10");
    await tab.shows(/w3/);
    await tab.quiet();
    const sent = tab.frames.length;
    await tab.button("Answer again").click();
    await tab.page.getByText("2 / 2").waitFor();
    await tab.quiet();
    same(await tab.prose(), words(4), "answer");
    same(await tab.answers.count(), 1, "answers");
    if (!tab.frames.slice(sent).some((frame) => frame.includes("regenerate-message"))) {
      throw new Error("no regenerate-message was sent");
    }
    await tab.button("Earlier answer").click();
    await tab.page.getByText("1 / 2").waitFor();
    same(await tab.prose(), words(4), "earlier answer");
    await tab.reload();
    await tab.shows(/w3/);
    same(await tab.answers.count(), 1, "answers after a reload");
  },

  async reasoning({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("reason 3 5");
    await tab.quiet();
    await tab.page.getByText("Thoughts").click();
    await tab.page.getByText("r0 r1 r2").waitFor();
    same(await tab.prose(), words(5), "answer");
  },

  async server_tool({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("tool 3");
    await tab.tool("echo", "output-available").waitFor();
    await tab.quiet();
    const card = tab.tool("echo", "output-available");
    await card.getByText('"echoed": "hi"').waitFor();
    if (!/\d ?m?s/.test(await card.locator(".took").textContent())) throw new Error("no duration");
    same(await tab.prose(), words(3), "answer");
    await tab.say("toolerr 2");
    await tab.tool("explode", "output-error").waitFor();
    await tab.quiet();
    await tab.page.getByText("tool exploded").waitFor();
  },

  async client_tool({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("client 5 20");
    await tab.tool("getLocation", "output-available").waitFor();
    await tab.page.getByText('"latitude": 52.52').waitFor();
    await tab.shows(/w4/);
    await tab.quiet();
    same(await tab.prose(), words(5), "answer");
    await tab.reload();
    await tab.shows(/w4/);
    same(await tab.prose(), words(5), "answer after a reload");
    same(await tab.tool("getLocation", "output-available").count(), 1, "calls");
  },

  async approval_accepted({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("approve 4 40");
    await tab.page.getByRole("status").getByText("needs your approval").waitFor();
    await tab.reload(); // the question is still there
    await tab.button("Approve").click();
    await tab.tool("danger", "output-available").waitFor();
    await tab.shows(/w3/);
    await tab.quiet();
    await tab.page.getByText('"did": "x"').waitFor();
    same(await tab.prose(), words(4), "answer");
  },

  async approval_denied({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("approve 4 40");
    await tab.button("Deny").click();
    await tab.tool("danger", "output-denied").waitFor();
    await tab.shows(/w3/);
    await tab.quiet();
    same(await tab.page.getByText('"did"').count(), 0, "results");
    same(await tab.prose(), words(4), "answer");
  },

  async error_then_reload({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("error 5 20");
    const alert = tab.page.getByRole("alert");
    await alert.getByText("mock stream error").waitFor();
    same(await tab.prose(), words(5), "partial answer");
    await tab.reload();
    await alert.getByText("mock stream error").waitFor();
    same(await tab.prose(), words(5), "partial answer after a reload");
    same(await tab.answers.count(), 1, "answers");
    await tab.say("text 2");
    await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 2);
    await tab.quiet();
    same(await alert.count(), 0, "alerts");
    await tab.reload();
    same(await alert.count(), 0, "alerts after a reload");
  },

  async clear({ tab, another, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("text 3");
    await tab.shows(/w2/);
    await tab.quiet();
    const second = await another();
    await second.open(given.page, "think-peer", room);
    await second.shows(/w2/);
    await tab.button("Clear the conversation").click();
    await tab.button("Clear").click();
    for (const one of [tab, second]) await one.page.locator(".welcome").waitFor();
    await tab.reload();
    await tab.page.locator(".welcome").waitFor();
    await tab.say("text 2");
    await tab.shows(/w1/);
    await tab.quiet();
    same(await tab.prose(), words(2), "answer");
  },

  async server_turn({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.page.evaluate(async (path) => {
      const socket = new WebSocket(`ws://${location.host}${path}`);
      await new Promise((resolve) => (socket.onopen = resolve));
      socket.send(JSON.stringify({ type: "rpc", id: "1", method: "say", args: ["text 10 30"] }));
    }, `/agents/think-peer/${room}`);
    await tab.shows(/w9/);
    await tab.quiet();
    same(await tab.prose(), words(10), "answer");
    same(await tab.page.locator('[data-role="user"]').textContent(), "You said:text 10 30", "question");
  },

  async conversations({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("text 2");
    await tab.shows(/w1/);
    await tab.button("New conversation").first().click();
    await tab.page.locator(".welcome").waitFor();
    if (tab.page.url().includes(room)) throw new Error("the address did not change");
    await tab.connected();
    await tab.say("text 3");
    await tab.shows(/w2/);
    await tab.quiet();
    const list = tab.page.locator(".conversations");
    same(await list.locator("li").count(), 2, "conversations");
    await list.getByRole("button", { name: "text 2", exact: true }).click();
    await tab.shows(/w1/);
    same(await tab.prose(), words(2), "the first one");
    await tab.button("Rename text 2").click();
    await tab.page.getByLabel("Name of the conversation").fill("Greetings");
    await tab.page.getByLabel("Name of the conversation").press("Enter");
    await tab.page.getByRole("heading", { name: "Greetings" }).waitFor();
    await tab.page.goBack();
    await tab.shows(/w2/);
    await tab.button("Remove text 3 from this list").click();
    await tab.page.getByRole("heading", { name: "Greetings" }).waitFor();
    same(await list.locator("li").count(), 1, "conversations");
    await tab.button("TravelGuide").click();
    await tab.page.getByRole("heading", { name: "TravelGuide" }).waitFor();
    await tab.page.goto(given.page); // no address: back to what was used last
    await tab.connected();
    if (!tab.page.url().includes("agent=think-peer")) throw new Error(`opened ${tab.page.url()}`);
  },

  async inspector({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.button("Inspector").click();
    await tab.say("tool 3");
    await tab.quiet();
    const panel = tab.page.getByRole("complementary", { name: "Inspector" });
    await panel.getByText("completed").last().waitFor();
    const rows = await panel.locator(".chunks .type").allTextContents();
    const expected = ["start", "start-step", "tool-input-start", "tool-input-delta", "tool-input-available"];
    same(rows.slice(0, 5).join(), expected.join(), "chunks");
    await panel.getByRole("tab", { name: "Frames" }).click();
    await panel.getByText("request", { exact: true }).waitFor();
    await panel.getByLabel("Filter").fill("messages");
    await panel.getByText("chat_messages", { exact: true }).first().waitFor();
    await panel.getByRole("tab", { name: "State" }).click();
    await panel.getByText('"count": 0').waitFor();
  },

  /** The server dies in the middle of an answer and comes back. */
  async killed_server({ tab, room }) {
    if (!given.spare) return "skipped";
    const start = async () => {
      const [program, ...words] = given.spare.command;
      const server = spawn(program, words, { cwd: given.spare.cwd, stdio: "ignore" });
      for (let i = 0; i < 100; i++) {
        if (await fetch(`${given.spare.page}/index.html`).then((r) => r.ok, () => false)) return server;
        await pause(100);
      }
      server.kill("SIGKILL");
      throw new Error("the server did not start");
    };
    let server = await start();
    try {
      await tab.open(given.spare.page, "think-peer", room);
      await tab.say("text 30 60");
      await tab.shows(/w8 /);
      server.kill("SIGKILL");
      await tab.page.getByRole("status").getByText("Reconnecting").waitFor();
      server = await start();
      await tab.connected();
      await tab.quiet();
      // What was shown is kept, once. Whether the answer then goes on is for the tests of recovery.
      const text = await tab.prose();
      same(text, words(text.split(" ").length), "kept answer");
      if (!text.includes("w8")) throw new Error(`kept only ${text}`);
      same(await tab.answers.count(), 1, "answers");
      same(await tab.page.getByRole("alert").count(), 0, "alerts");
      await tab.say("text 2");
      await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 2);
      await tab.quiet();
      same(await tab.prose(), words(2), "next answer");
    } finally {
      server.kill("SIGKILL");
    }
  },

  async keyboard_and_names({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.page.keyboard.type("text 100 40"); // the field has the focus
    await tab.page.keyboard.press("Enter");
    await tab.shows(/w3 /);
    await tab.page.keyboard.press("Escape");
    await tab.quiet();
    const nameless = await tab.page.evaluate(() =>
      [...document.querySelectorAll("button, input, textarea, select, a[href]")]
        .filter((node) => !(node.getAttribute("aria-label") || node.labels?.length || node.textContent.trim()))
        .map((node) => node.outerHTML.slice(0, 120)),
    );
    same(nameless.join("\n"), "", "controls without a name");
    same(await tab.page.getByRole("log").getAttribute("aria-live"), "polite", "live region");
    for (let i = 0; i < 12; i++) {
      await tab.page.keyboard.press("Tab");
      const seen = await tab.page.evaluate(() => {
        const { width, height } = document.activeElement.getBoundingClientRect();
        return document.activeElement === document.body || (width > 0 && height > 0);
      });
      if (!seen) throw new Error("the focus went to something invisible");
    }
  },

  async pictures({ tab, another, room }) {
    if (!given.pictures) return "skipped";
    const { page } = tab;
    await page.setViewportSize({ width: 1280, height: 960 });
    await tab.open(given.page, "travel-guide", room);
    await picture(tab, "welcome");
    await tab.say("What should I pack for a weekend in Lisbon?");
    await tab.shows("Alfama");
    await tab.quiet();
    await page.locator(".transcript").evaluate((node) => (node.scrollTop = 0));
    await picture(tab, "light");
    await tab.say("Please book it");
    await tab.button("Approve").waitFor();
    await tab.quiet();
    await picture(tab, "approval");
    await tab.button("Inspector").click();
    await tab.button("Approve").click();
    await tab.shows("on its way");
    await tab.quiet();
    await picture(tab, "inspector");
    await page.getByRole("tab", { name: "Frames" }).click();
    await page.locator(".panel").evaluate((node) => (node.scrollTop = node.scrollHeight));
    await picture(tab, "frames");
    await tab.button("Close the inspector").click();
    await page.emulateMedia({ colorScheme: "dark" });
    await picture(tab, "dark");
    const phone = await another({
      viewport: { width: 390, height: 844 },
      deviceScaleFactor: 2,
      hasTouch: true,
      isMobile: true,
    });
    await phone.open(given.page, "travel-guide", room);
    await phone.shows("on its way");
    await picture(phone, "phone");
    const wide = await phone.page.evaluate(() => document.documentElement.scrollWidth);
    same(wide, 390, "width on a phone");
    await phone.button("Conversations").click();
    await picture(phone, "phone-list");
    // What the page says while the server mends a turn: the frame is played, the turn is not.
    const third = await another();
    let socket;
    await third.page.routeWebSocket(/\/agents\//, (route) => {
      socket = route;
      route.connectToServer();
    });
    await third.open(given.page, "travel-guide", room);
    await third.shows("on its way");
    socket.send(JSON.stringify({ type: "cf_agent_chat_recovering", recovering: true, id: "x" }));
    await third.page.getByRole("status").getByText("Recovering").waitFor();
    await picture(third, "recovering");
  },
};

async function picture(tab, name) {
  if (!given.pictures) return;
  await pause(250);
  await tab.page.screenshot({ path: `${given.pictures}/page-${name}.png` });
}

async function travel(browser, name) {
  const began = performance.now();
  const contexts = [];
  const tabs = [];
  const another = async (options = {}) => {
    const context = await browser.newContext({
      viewport: { width: 1280, height: 800 },
      permissions: ["geolocation"],
      geolocation: { latitude: 52.52, longitude: 13.405 },
      reducedMotion: "reduce",
      ...options,
    });
    context.setDefaultTimeout(given.timeout ?? 30_000);
    contexts.push(context);
    const tab = new Tab(await context.newPage());
    tabs.push(tab);
    return tab;
  };
  const result = { name, ok: true };
  try {
    const room = `${name.replaceAll("_", "-")}-${process.pid}`;
    if ((await journeys[name]({ tab: await another(), another, room })) === "skipped") result.skipped = true;
    const troubles = tabs.flatMap((tab) => tab.troubles).filter((text) => !/WebSocket connection to/.test(text));
    if (troubles.length) throw new Error(`on the console: ${troubles.join("\n")}`);
  } catch (error) {
    result.ok = false;
    result.error = String(error.stack ?? error).slice(0, 3000);
    result.shown = await tabs[0]?.page.innerText("body").catch(() => "");
    result.frames = tabs.map((tab) => tab.frames.slice(-60));
  }
  await Promise.all(contexts.map((context) => context.close().catch(() => {})));
  result.seconds = Math.round(performance.now() - began) / 1000;
  console.log(JSON.stringify(result));
}

if (given.list) {
  console.log(JSON.stringify(Object.keys(journeys)));
} else {
  const browser = await chromium.launch({ executablePath: given.chromium, args: FLAGS });
  const waiting = [...(given.only ?? Object.keys(journeys))];
  const worker = async () => {
    for (let name = waiting.shift(); name; name = waiting.shift()) await travel(browser, name);
  };
  await Promise.all(Array.from({ length: given.workers ?? 4 }, worker));
  await browser.close();
}
