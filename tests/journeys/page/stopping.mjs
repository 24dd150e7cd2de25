// Journeys around the end of an answer that was stopped, with the server's frames held back between it and the page.

import { given, same } from "./tab.mjs";

/** Frames of the server wait here from `hold()` on, until they are let through. */
async function held(tab) {
  let waiting = null;
  const gate = {
    hold: () => (waiting = []),
    let_through: () => {
      for (const deliver of waiting) deliver();
      waiting = null;
    },
  };
  await tab.page.routeWebSocket(/\/agents\//, (socket) => {
    const server = socket.connectToServer();
    server.onMessage((text) => (waiting ? waiting.push(() => socket.send(text)) : socket.send(text)));
    gate.drop = () => {
      waiting = null;
      server.close();
      return socket.close({ code: 1012 });
    };
  });
  return gate;
}

const field = (tab) => tab.page.getByLabel("Message", { exact: true });
const early = (tab) => tab.page.getByRole("alert").getByText("Not sent yet: the answer is being stopped");

/** An answer is stopped, and of its end nothing arrives. */
async function stopped(tab, room) {
  const gate = await held(tab);
  await tab.open(given.page, "think-peer", room);
  await tab.say("text 500 40");
  await tab.shows(/w3 /);
  gate.hold();
  await tab.page.keyboard.press("Escape");
  await tab.page.getByRole("status").getByText("Stopping…").waitFor();
  await tab.page.locator('.notice[data-status="ready"]').waitFor(); // to the hook it is over
  await tab.say("text 2");
  await early(tab).waitFor();
  same(await field(tab).inputValue(), "text 2", "what was written");
  same(await tab.page.locator('[data-role="user"]').count(), 1, "questions");
  return gate;
}

/** What was held is sent, and both questions have an answer of their own. */
async function sent(tab) {
  await early(tab).waitFor({ state: "detached" });
  await field(tab).press("Enter");
  await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 2);
  await tab.quiet();
  same(await tab.prose(), "w0 w1", "the next answer");
  same((await tab.page.locator('[data-role="user"] .said').allInnerTexts()).join(" | "), "text 500 40 | text 2", "questions");
}

export const journeys = {
  async asked_again_before_the_end_of_a_stopped_answer({ tab, room }) {
    const gate = await stopped(tab, room);
    gate.let_through();
    await sent(tab);
    await tab.reload();
    same(await tab.prose(), "w0 w1", "the next answer after a reload");
  },

  async a_line_that_breaks_before_the_end_of_a_stopped_answer({ tab, room }) {
    const gate = await stopped(tab, room);
    await gate.drop();
    await tab.page.getByRole("status").getByText("Reconnecting").waitFor();
    await tab.connected();
    await sent(tab);
  },

  /** It lets one send again in the end: nobody is locked out by a server that forgot. */
  async an_end_of_a_stopped_answer_that_never_comes({ tab, room }) {
    await tab.page.clock.install();
    await stopped(tab, room);
    await tab.page.clock.fastForward(9_000);
    await tab.button("Stop").waitFor();
    await tab.page.clock.fastForward(2_000);
    await early(tab).waitFor({ state: "detached" });
    await tab.button("Send").waitFor();
    same(await field(tab).inputValue(), "text 2", "what was written");
  },
};
