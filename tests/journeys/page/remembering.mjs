// Journeys through what an agent remembers: blocks, summaries, sessions, search.

import { Panel } from "./inspecting.mjs";
import { given, picture, same } from "./tab.mjs";

const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };

/** The Memory tab, in the words of someone who uses it. */
class Memory extends Panel {
  block(label) {
    return this.side.locator(`[data-block="${label}"]`);
  }

  piece(name) {
    return this.side.locator(`[data-piece="${name}"]`);
  }

  get prompt() {
    return this.side.locator("[data-prompt] pre").textContent();
  }

  async edit(label, text) {
    await this.block(label).getByRole("button", { name: `Edit ${label}` }).click();
    await this.block(label).getByLabel(`Content of ${label}`).fill(text);
    await this.block(label).getByRole("button", { name: "Save" }).click();
  }

  button(name) {
    return this.side.getByRole("button", { name, exact: true });
  }
}

/** Ask, and wait for the end of the answer. */
async function ask(tab, text, shown) {
  await tab.say(text);
  await tab.shows(shown);
  await tab.quiet();
}

/** Talk until the beginning of the conversation is summarised. */
async function talkAtLength(tab, first = "Do some research about lighthouses") {
  await ask(tab, "hello", "I am the demo model");
  await ask(tab, first, "The library has");
  for (let i = 0; i < 4; i++) await ask(tab, `count to ${200 + i}`, `${199 + i}, ${200 + i}.`);
  await tab.page.locator("[data-summary]").waitFor();
}

const card = (tab) => tab.page.locator("[data-summary]");
const sessions = (tab) => tab.page.getByRole("group", { name: "Sessions of this conversation" });
const session = (tab, name) => sessions(tab).getByRole("button", { name, exact: true });

async function live(tab, name) {
  await tab.page.locator(".sessions li.here").getByRole("button", { name, exact: true }).waitFor();
}

async function search(tab, words) {
  await tab.page.getByLabel("Search what was said").fill(words);
  await tab.page.locator(".search").getByText(/^(\d+ hits?|Nothing found\.)$/).waitFor();
}

const hits = (tab) => tab.page.locator("[data-hit]");

/** The message that was jumped to has the focus and is on the screen. */
async function sees(tab, text) {
  await tab.page.waitForFunction((text) => {
    const found = document.activeElement;
    if (!found?.dataset.message || !found.textContent.includes(text)) return false;
    const { top, bottom } = found.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  }, text);
}

export const journeys = {
  async a_block_written_in_the_page({ tab, room }) {
    await tab.open(given.page, "demo", room, "&inspect=memory");
    const memory = new Memory(tab);
    await ask(tab, "hello", "I am the demo model");
    await memory.block("memory").getByText("(empty)").waitFor();
    same(await memory.block("guide").getByRole("button").count(), 0, "ways to edit a block that is readonly");
    await memory.piece("blocks").getByText("Made of guide, memory, history.").waitFor();
    await memory.piece("blocks").getByText("Kept across restarts").waitFor();
    await memory.piece("get_system_prompt").getByText("not used", { exact: true }).waitFor();

    // When a block is written, the prompt stays as it is and says so
    await memory.edit("memory", "The person likes tea.");
    await memory.block("memory").getByText("Written since, shows after the next refresh.").waitFor();
    await memory.piece("blocks").getByText("Written since, shows after the next refresh: memory.").waitFor();
    if ((await memory.prompt).includes("likes tea")) throw new Error("the prompt changed by itself");
    await ask(tab, "What do you remember?", "My memory is empty");
    await tab.page.setViewportSize({ width: 1280, height: 1000 });
    await picture(tab, "memory");
    await tab.page.emulateMedia({ colorScheme: "dark" });
    await picture(tab, "memory-dark");
    await tab.page.emulateMedia({ colorScheme: "light" });

    // After a refresh the model reads it
    await memory.button("Refresh prompt").click();
    await memory.piece("blocks").getByText("Fixed since its last refresh").waitFor();
    await memory.side.getByText("because it was asked for").waitFor();
    if (!(await memory.prompt).includes("The person likes tea.")) throw new Error("the prompt does not show it");
    same(await memory.side.getByText("Written since").count(), 0, "blocks behind");
    await ask(tab, "What do you remember?", "My prompt tells me: The person likes tea.");

    // What does not fit is refused, and what was typed is kept
    await memory.edit("memory", "much too long ".repeat(400));
    await memory.block("memory").getByRole("alert").getByText("exceeds maxTokens").waitFor();
    same((await memory.block("memory").getByRole("textbox").inputValue()).length, 5600, "what was typed");
    await memory.button("Cancel").click();
    await memory.block("memory").getByText("The person likes tea.").waitFor();
    await tab.reload();
    await memory.block("memory").getByText("The person likes tea.").waitFor();
    tab.troubles = tab.troubles.filter((text) => !text.includes("400 (Bad Request)"));
  },

  async a_block_that_two_write({ tab, another, room }) {
    await tab.open(given.page, "demo", room, "&inspect=memory");
    const memory = new Memory(tab);
    await memory.button("Edit memory").click();
    await memory.block("memory").getByRole("textbox").fill("Mine.");
    const second = await another();
    await second.open(given.page, "demo", room, "&inspect=memory");
    await new Memory(second).edit("memory", "Theirs.");
    await new Memory(second).block("memory").locator("pre").getByText("Theirs.").waitFor();
    await memory.button("Save").click();
    await memory.block("memory").getByRole("alert").getByText("written meanwhile").waitFor();
    same(await memory.block("memory").getByRole("textbox").inputValue(), "Mine.", "the draft");
    await memory.button("Cancel").click();
    await memory.block("memory").locator("pre").getByText("Theirs.").waitFor();
    tab.troubles = tab.troubles.filter((text) => !text.includes("409 (Conflict)"));
  },

  async memory_by_keyboard({ tab, room }) {
    await tab.open(given.page, "demo", room, "&inspect=memory");
    const memory = new Memory(tab);
    await memory.button("Edit memory").press("Enter");
    await tab.page.keyboard.type("By hand.");
    const nameless = await tab.page.evaluate(() =>
      [...document.querySelectorAll("button, input, textarea, select, [role=meter]")]
        .filter((node) => !(node.getAttribute("aria-label") || node.labels?.length || node.textContent.trim()))
        .map((node) => node.outerHTML.slice(0, 120)),
    );
    same(nameless.join("\n"), "", "controls without a name");
    await tab.page.keyboard.press("Escape");
    await tab.page.keyboard.press("Control+Enter");
    await memory.block("memory").locator("pre").getByText("By hand.").waitFor();
    const focused = () => tab.page.evaluate(() => document.activeElement.getAttribute("aria-label"));
    same(await focused(), "Edit memory", "focus afterwards");

    // Search, go there, and come back
    await ask(tab, "count to 3", "1, 2, 3.");
    await tab.page.getByLabel("Search what was said").focus();
    await tab.page.keyboard.type("count");
    await hits(tab).first().waitFor();
    for (let i = 0; i < 3; i++) {
      if (await tab.page.locator("[data-hit] button:focus").count()) break;
      await tab.page.keyboard.press("Tab");
    }
    await tab.page.keyboard.press("Enter");
    await sees(tab, "count to 3");
  },

  async memory_that_the_model_writes({ tab, room }) {
    await tab.open(given.page, "demo", room, "&inspect=memory");
    const memory = new Memory(tab);
    await tab.say("Remember that my dog is called Rex");
    await tab.tool("set_context", "output-available").waitFor();
    await tab.shows("I wrote that down.");
    await tab.quiet();
    await memory.block("memory").getByText("My dog is called Rex.").waitFor();
    await tab.reload();
    await memory.block("memory").getByText("My dog is called Rex.").waitFor();
    await ask(tab, "What do you remember?", "My dog is called Rex.");
  },

  async a_summary_unfolds({ tab, room }) {
    let socket;
    await tab.page.routeWebSocket(/\/agents\//, (route) => {
      socket = route;
      route.connectToServer();
    });
    await tab.open(given.page, "demo", room, "&inspect=memory");
    const memory = new Memory(tab);
    await talkAtLength(tab);
    if (!tab.frames.some((frame) => frame.includes('"phase":"compacting"'))) throw new Error("nobody was told");

    // What the page says meanwhile: the frame is played, so that there is time to look
    const status = { type: "cf_agent_session", phase: "compacting", tokenEstimate: 1300, tokenThreshold: 1200 };
    socket.send(JSON.stringify(status));
    await tab.page.getByRole("status").getByText("Summarising earlier messages").waitFor();
    socket.send(JSON.stringify({ ...status, phase: "idle" }));
    await tab.page.getByRole("status").getByText("Summarising earlier messages").waitFor({ state: "detached" });

    // The card says how many, then what, then shows the messages themselves
    await card(tab).getByText(/^\d+ earlier messages, summarised$/).click();
    await card(tab).getByText("Earlier in this conversation").waitFor();
    same(await card(tab).locator("[data-behind]").count(), 0, "messages before they are asked for");
    await card(tab).getByRole("button", { name: "Show the messages" }).click();
    await card(tab).locator("[data-behind]").first().waitFor();
    const [said] = /^\d+/.exec(await card(tab).locator("summary").first().textContent());
    same(await card(tab).locator("[data-behind]").count(), Number(said), "messages behind it");
    await card(tab).getByText("The library has three books about lighthouses.").last().waitFor();
    await card(tab).scrollIntoViewIfNeeded();
    await picture(tab, "summary");
    await card(tab).getByRole("button", { name: "Hide the messages" }).click();
    same(await card(tab).locator("[data-behind]").count(), 0, "messages afterwards");

    // The inspector says why
    const row = memory.side.locator('[data-compaction="shown"]');
    await row.getByText("outgrew its threshold").waitFor();
    await memory.side.getByRole("meter", { name: "Length of the conversation" }).waitFor();
    await memory.side.getByText("because the conversation was summarised").waitFor();
    await memory.button("Compact now").click();
    await memory.side.getByText(/^From .* tokens\.$|^There was nothing to shorten\.$/).waitFor();

    await tab.reload();
    await card(tab).waitFor();
    same(await card(tab).count(), 1, "summaries after a reload");
    await ask(tab, "count to 5", "1, 2, 3, 4, 5.");
  },

  async versions_below_a_summary({ tab, room }) {
    await tab.open(given.page, "demo", room);
    await talkAtLength(tab);
    await ask(tab, "count to 7", "6, 7.");
    await tab.button("Answer again").click();
    await tab.page.getByText("2 / 2").waitFor();
    await tab.quiet();
    await tab.button("Earlier answer").click();
    await tab.button("Go on from this one").click();
    await tab.page.getByText("1 / 2").waitFor();
    await tab.button("Go on from this one").waitFor({ state: "detached" });
    await card(tab).waitFor();
    await ask(tab, "count to 8", "7, 8.");
    await tab.reload();
    await card(tab).waitFor();
    await tab.page.getByText("1 / 2").waitFor();
  },

  async search_finds_what_is_summarised_or_elsewhere({ tab, another, room }) {
    await tab.open(given.page, "demo", room);
    await talkAtLength(tab);
    await search(tab, "library");
    same(await hits(tab).count(), 1, "hits");
    same(await hits(tab).locator("mark").first().textContent(), "library", "what is marked");
    await hits(tab).getByText("summarised").waitFor();
    await hits(tab).getByRole("button").click();
    await sees(tab, "The library has three books");
    same(await tab.page.locator("[data-behind]:focus").count(), 1, "a message behind the summary in focus");

    // From another session it is found in all of them, and leads back
    await tab.page.getByLabel("Search what was said").press("Escape");
    await tab.button("New session").click();
    await live(tab, "Session 2");
    await ask(tab, "count to 12", "11, 12.");
    await search(tab, "library");
    await tab.page.getByText("Nothing found.").waitFor();
    await tab.page.getByLabel("All sessions").check();
    await hits(tab).getByText("Main session").waitFor();
    await hits(tab).getByRole("button").click();
    await sees(tab, "The library has three books");

    const phone = await another(PHONE);
    await phone.open(given.page, "demo", room);
    await phone.button("Conversations").tap();
    await session(phone, "Session 2").waitFor();
    await picture(phone, "phone-sessions");
    await search(phone, "count");
    await phone.page.getByLabel("All sessions").check();
    await hits(phone).getByText("Session 2").first().waitFor();
    await picture(phone, "phone-search");
    same(await phone.page.evaluate(() => document.documentElement.scrollWidth), 390, "width on a phone");
    await hits(phone).getByRole("button", { name: "12" }).last().tap();
    await phone.page.locator(".sidebar").waitFor({ state: "detached" });
  },

  async sessions_come_and_go({ tab, room }) {
    await tab.open(given.page, "demo", room);
    await ask(tab, "count to 3", "1, 2, 3.");
    await ask(tab, "count to 4", "1, 2, 3, 4.");

    // A fork from the first answer has what was said until then
    await tab.button("New session from here").first().click();
    await live(tab, "Fork of the conversation");
    await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 1);
    same(await tab.prose(), "1, 2, 3.", "what the fork has");
    await ask(tab, "count to 5", "1, 2, 3, 4, 5.");

    await tab.button("Rename the session Fork of the conversation").click();
    await tab.page.getByLabel("Name of the session").fill("Other way");
    await tab.page.getByLabel("Name of the session").press("Enter");
    await live(tab, "Other way");

    await session(tab, "Main session").click();
    await live(tab, "Main session");
    await tab.shows("1, 2, 3, 4.");
    same(await tab.answers.count(), 2, "answers in the main session");

    await tab.button("New session").click();
    await live(tab, "Session 3");
    await tab.page.locator(".welcome").waitFor();
    await tab.reload();
    await live(tab, "Session 3");
    await tab.page.locator(".welcome").waitFor();

    // Deleting asks first
    await tab.button("Delete the session Other way").click();
    await tab.page.getByRole("dialog").getByRole("button", { name: "Keep" }).click();
    await session(tab, "Other way").waitFor();
    await tab.button("Delete the session Other way").click();
    await tab.page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await session(tab, "Other way").waitFor({ state: "detached" });
    same(await tab.button("Delete the session Session 3").count(), 0, "ways to delete the live one");
    await session(tab, "Main session").click();
    await tab.shows("1, 2, 3, 4.");
  },

  async two_tabs_follow_a_session({ tab, another, room }) {
    await tab.open(given.page, "demo", room);
    const second = await another();
    await second.open(given.page, "demo", room);
    await ask(tab, "count to 3", "1, 2, 3.");
    await second.shows("1, 2, 3.");
    await tab.button("New session").click();
    for (const one of [tab, second]) {
      await live(one, "Session 2");
      await one.page.locator(".welcome").waitFor();
    }
    await ask(second, "count to 4", "3, 4.");
    await tab.shows("3, 4.");
    await session(second, "Main session").click();
    for (const one of [tab, second]) {
      await live(one, "Main session");
      await one.shows("1, 2, 3.");
      same(await one.answers.count(), 1, "answers");
    }
  },

  async no_session_is_opened_while_a_turn_runs({ tab, another, room }) {
    await tab.open(given.page, "study", room);
    await ask(tab, "hello", "Done.");
    await tab.button("New session").click();
    await live(tab, "Session 2");
    await tab.say('bash {"script": "wait"}'); // for us
    await tab.tool("bash", "progress").waitFor();
    const second = await another();
    await second.open(given.page, "study", room);
    await session(second, "Main session").click();
    await sessions(second).getByRole("alert").getByText("while a turn runs").waitFor();
    await live(tab, "Session 2");
    await fetch(`${given.page}/agents/study/${room}/go`, { method: "POST" });
    await Promise.all([tab.quiet(), second.quiet()]);
    second.troubles = second.troubles.filter((text) => !text.includes("409 (Conflict)"));
  },
};
