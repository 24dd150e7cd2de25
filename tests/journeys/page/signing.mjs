// Journeys of people who have to say who they are, and have to say it again.

import { given, picture, same } from "./tab.mjs";

/** What the server is told beside the page, by somebody who may always. */
const tell = (room, what) => fetch(`${given.guarded}/agents/guarded/${room}/${what}?token=eve`, { method: "POST" });

async function enter(tab, token) {
  await tab.page.getByLabel("Token").fill(token);
  await tab.page.getByLabel("Token").press("Enter");
  await tab.connected();
}

/** In a conversation, with a token, and something said. */
async function inside(tab, room, token) {
  await tab.page.goto(`${given.guarded}/?agent=guarded&name=${room}`);
  await enter(tab, token);
  await tab.say("first");
  await tab.shows("Idea number");
  await tab.quiet();
}

/** The page says that one has to sign in, and after that one is where one was. */
async function again(tab, token) {
  await tab.page.getByRole("status").getByText("You are not signed in any more").waitFor();
  same(await tab.page.getByText("Reconnecting").count(), 0, "promises to come back");
  await picture(tab, "signed-out");
  await tab.button("Sign in").click();
  await enter(tab, token);
  await tab.shows("Idea number");
  await tab.say("second");
  await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 2);
  tab.troubles.length = 0; // the browser writes each 401 to the console
}

export const journeys = {
  async time_is_over({ tab, room }) {
    await inside(tab, room, "ada");
    await tell(room, "later");
    await again(tab, "eve");
  },

  /** The line breaks for another reason, and who comes back is not known any more. */
  async nobody_knows_them_when_they_come_back({ tab, room }) {
    await inside(tab, room, "bob");
    await tell(room, "revoke");
    await again(tab, "eve");
  },
};
