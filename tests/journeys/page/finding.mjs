// Journeys through the list of conversations. It is the server's, so they have an agent class of their own.

import { given, same, words } from "./tab.mjs";

const entry = (tab, title) => tab.page.locator(".conversations").getByRole("button", { name: title, exact: true });

export const journeys = {
  async conversations({ tab, another, room }) {
    await tab.open(given.page, "archive", room);
    await tab.say("text 2");
    await tab.shows(/w1/);
    await tab.quiet();
    await tab.button("New conversation").first().click();
    await tab.page.locator(".welcome").waitFor();
    if (tab.page.url().includes(room)) throw new Error("the address did not change");
    await tab.connected();
    await tab.say("text 3");
    await tab.shows(/w2/);
    await tab.quiet();
    const list = tab.page.locator(".conversations > li");
    await entry(tab, "text 2").click();
    await tab.page.getByRole("heading", { name: "text 2" }).waitFor();
    await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 1);
    same(await tab.prose(), words(2), "the first one");

    // Another browser, which has never been here, is told the same.
    const other = await another();
    await other.page.goto(`${given.page}/?agent=archive`);
    await other.connected();
    await entry(other, "text 3").waitFor();
    await other.button("Rename text 2").click();
    await other.page.getByLabel("Name of the conversation").fill("Greetings");
    await other.page.getByLabel("Name of the conversation").press("Enter");
    await entry(other, "Greetings").waitFor();
    await tab.reload();
    await tab.page.getByRole("heading", { name: "Greetings" }).waitFor();

    // What was said in another conversation is found, and leads there.
    await tab.page.getByLabel("Search what was said").fill("w2");
    await tab.page.getByText("Nothing found.").waitFor();
    await tab.page.getByLabel("All conversations").check();
    await tab.page.locator(".hits").getByText("text 3").waitFor();
    await tab.page.locator(".hits").getByRole("button").click();
    await tab.page.getByRole("heading", { name: "text 3" }).waitFor();
    await tab.shows(/w2/);
    await tab.page.getByLabel("Search what was said").fill("");

    // Deleting asks first, and is for everybody. Who leaves before the server has said that the next one may be
    // entered has been there all the same.
    let answer;
    const held = new Promise((resolve) => (answer = resolve));
    await tab.page.route(/conversations\/archive\?open=/, (route) => held.then(() => route.continue()));
    await tab.button("Delete text 3").click();
    await tab.page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await tab.page.getByRole("heading", { name: "Greetings" }).waitFor();
    await tab.button("TravelGuide").click();
    await tab.page.getByRole("heading", { name: "TravelGuide" }).waitFor();
    answer();
    await tab.page.waitForFunction((name) => JSON.parse(localStorage.getItem("everthink.last")).archive === name, room);
    await tab.page.goto(`${given.page}/?agent=archive`); // no name: back to what was used last
    await tab.page.getByRole("heading", { name: "Greetings" }).waitFor();
    await entry(tab, "Greetings").waitFor();
    same(await entry(tab, "text 3").count(), 0, "what is still listed");
    await other.reload();
    await entry(other, "Greetings").waitFor();
    same(await entry(other, "text 3").count(), 0, "what another browser still lists");
    same(await list.count(), 1, "conversations");

    await tab.button("TravelGuide").click();
    await tab.page.getByRole("heading", { name: "TravelGuide" }).waitFor();
    await tab.page.goto(`${given.page}/?agent=archive`);
    await tab.page.getByRole("heading", { name: "Greetings" }).waitFor();
  },

  // Who writes in a field while a conversation opens goes on writing there.
  async writing_while_it_opens({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("text 2");
    await tab.shows(/w1/);
    await tab.quiet();
    let open;
    const held = new Promise((resolve) => (open = resolve));
    await tab.page.route(/get-messages/, (route) => held.then(() => route.continue()));
    await tab.button("New conversation").first().click();
    const search = tab.page.getByLabel("Search what was said");
    await search.pressSequentially("wo");
    open();
    await tab.page.locator("#message").waitFor();
    await tab.page.keyboard.type("rd");
    same(await search.inputValue(), "word", "what was searched for");
    same(await tab.page.locator("#message").inputValue(), "", "the message field");
  },
};
