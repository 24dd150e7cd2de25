// Journeys through a conversation.

import { spawn } from "node:child_process";
import { given, pause, picture, same, words } from "./tab.mjs";

export const journeys = {
  async send_and_stream({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("text 150 40"); // six seconds: time to be seen streaming on a slow machine
    await tab.shows(/w2 /);
    await tab.button("Stop").waitFor();
    await tab.quiet();
    same(await tab.prose(), words(150), "answer");
    same(await tab.answers.count(), 1, "answers");
    await tab.say("text 3");
    await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 2);
    await tab.quiet();
    same(await tab.prose(), words(3), "second answer");
    same(await tab.page.title(), "text 150 40 · ThinkPeer", "title");
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

  async links_that_run_something_are_words({ tab, room }) {
    await tab.open(given.page, "muse", room);
    await tab.say("links");
    await tab.shows(/Idea number 1/);
    await tab.quiet();
    const links = await tab.answers.last().locator("a[href]").evaluateAll((all) =>
      all.map((one) => [one.getAttribute("href"), one.hasAttribute("download")]),
    );
    // What runs in a page is saved at most; what is none of the web's is no link at all.
    const opened = links.filter(([, saved]) => !saved).map(([href]) => href);
    same(opened.join(" "), "https://example.com/picture.png", "links");
    same(links.filter(([href, saved]) => saved && !href.startsWith("data:text/html,")).length, 0, "other downloads");
    // A drawing is shown as a picture, in which nothing runs.
    same(await tab.answers.last().locator("img").count(), 2, "pictures");
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
    await tab.say("text 150 40");
    await second.shows(/w5 /);
    await second.button("Stop").waitFor();
    await Promise.all([tab.quiet(), second.quiet()]);
    for (const one of [tab, second]) {
      same(await one.prose(), words(150), "answer");
      same(await one.answers.count(), 1, "answers");
      same(await one.page.locator('[data-role="user"]').count(), 1, "questions");
    }
    // The one that only watches may stop it, too.
    await tab.say("text 500 40");
    await second.shows(/w3 /);
    await second.button("Stop").click();
    await Promise.all([tab.quiet(), second.quiet()]);
    const stopped = await tab.prose();
    if (stopped.includes("w499")) throw new Error("the turn was not stopped");
    same(await second.prose(), stopped, "what both have");
  },

  async stop({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("text 500 40");
    await tab.shows(/w5 /);
    await tab.button("Stop").click();
    await tab.quiet(); // its end has arrived
    const text = await tab.prose();
    if (!text.startsWith("w0 w1 w2 w3 w4 w5") || text.includes("w499")) throw new Error(`stopped with ${text}`);
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
    await tab.say("text 2");
    await tab.shows(/w1/);
    await tab.quiet();
    const offered = () => tab.frames.some((frame) => frame.startsWith("> ") && frame.includes("getLocation"));
    same(offered(), false, "tools that nobody offered");
    await tab.button("Tools of this browser").click();
    await tab.page.locator('[aria-label="Tools of this browser"][aria-pressed="true"]').waitFor();
    await tab.connected();
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
    same(await tab.button("Tools of this browser").getAttribute("aria-pressed"), "true", "the choice after a reload");
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

  /** What the server does not take is said, and does not stand in the way of what is said next. */
  async refused({ tab, another, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("text 2");
    await tab.shows(/w1/);
    await tab.quiet();
    const second = await another();
    await second.open(given.page, "think-peer", room);
    await tab.say("text 2 ".repeat(5000));
    const alert = tab.page.getByRole("alert");
    await alert.getByText(/bytes of text, more than/).waitFor();
    await tab.button("Send").waitFor(); // nothing is waited for
    same(await tab.page.locator(".dots").count(), 0, "signs of work");
    await alert.getByRole("button", { name: "Try again" }).click();
    await alert.getByText(/bytes of text, more than/).waitFor();
    same(await second.page.locator('[data-role="user"]').count(), 1, "questions in the other tab");
    await tab.say("text 3");
    for (const one of [tab, second]) {
      await one.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 2);
      await one.quiet();
      same(await one.prose(), words(3), "answer");
      same(await one.page.locator('[data-role="user"]').count(), 2, "questions");
    }
    same(await alert.count(), 0, "alerts");
    await tab.say("text 2 ".repeat(400_000)); // longer than any frame
    await tab.page.getByRole("status").getByText("nothing of it arrived").waitFor();
    await tab.connected();
    await tab.say("text 4");
    await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 3);
    await tab.quiet();
    same(await tab.prose(), words(4), "answer after that");
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

  /** The server dies in the middle of an answer and comes back. */
  async killed_server({ tab, room }) {
    if (!given.spare) return "skipped";
    const start = async () => {
      const [program, ...words] = given.spare.command;
      const server = spawn(program, words, { cwd: given.spare.cwd, stdio: "ignore" });
      for (let i = 0; i < 600; i++) {
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
      // What was shown is kept, once, and the answer goes on to its end.
      same(await tab.prose(), words(30), "answer");
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
    await tab.page.keyboard.type("text 500 40"); // the field has the focus
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
};
