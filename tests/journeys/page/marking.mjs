// Journeys to what is not a plain answer: endings that are marked, progress, sources, pictures, the stand-in.

import { given, picture, same } from "./tab.mjs";

const mark = (tab, kind) => tab.page.locator(`[data-mark="${kind}"]`);

/** Both tabs mark it so, now and after a reload. */
async function marked(tabs, kind, text) {
  for (const tab of tabs) {
    await mark(tab, kind).getByText(text).waitFor();
    await tab.reload();
    await mark(tab, kind).getByText(text).waitFor();
    same(await tab.page.locator("[data-mark]").count(), 1, "marks");
  }
}

async function two({ tab, another, room }, agent) {
  const tabs = [tab, await another()];
  for (const one of tabs) await one.open(given.page, agent, room);
  return tabs;
}

export const journeys = {
  async a_tool_that_was_stopped_waits_for_nobody({ tab, room }) {
    await tab.open(given.page, "mine", room);
    await tab.say("Rest");
    await tab.page.locator('[data-tool="rest"] header').getByText("Running", { exact: true }).waitFor();
    await tab.page.keyboard.press("Escape");
    const see = async (one) => {
      await one.page.getByText("Stopped here.").waitFor();
      await one.page.locator('[data-tool="rest"] header').getByText("Was not finished", { exact: true }).waitFor();
      same(await one.page.locator('[data-tool="rest"] textarea').count(), 0, "fields to answer for it");
    };
    await see(tab);
    await tab.reload();
    await see(tab);
  },

  async stopped_is_marked(walk) {
    const tabs = await two(walk, "think-peer");
    await tabs[0].say("text 500 40");
    await tabs[1].shows(/w3 /);
    same(await tabs[0].page.locator("[data-mark]").count(), 0, "marks while it streams");
    await tabs[0].button("Stop").click();
    await marked(tabs, "stopped", "Stopped here.");
    await tabs[0].say("text 2"); // and it stays marked when the conversation goes on
    await tabs[0].page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 2);
    await tabs[0].quiet();
    await marked(tabs, "stopped", "Stopped here.");
  },

  async failed_is_marked(walk) {
    const tabs = await two(walk, "think-peer");
    await tabs[0].say("error 4");
    await tabs[0].page.getByRole("alert").getByText("mock stream error").waitFor();
    await picture(tabs[0], "failed");
    await marked(tabs, "failed", "This answer failed and is not complete.");
    await tabs[0].say("text 2");
    await tabs[0].page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 2);
    await tabs[0].quiet();
    await marked(tabs, "failed", "not complete. mock stream error"); // nothing else tells why any more
  },

  async unanswered_is_marked(walk) {
    const tabs = await two(walk, "think-peer");
    await tabs[0].say("throw");
    await marked(tabs, "failed", "There is no answer");
    await tabs[0].say("text 2");
    await tabs[0].shows(/w1/);
    await tabs[0].quiet();
    await marked(tabs, "failed", "There is no answer: the turn failed. mock call rejected");
  },

  async steps_that_ran_out_are_marked(walk) {
    const tabs = await two(walk, "walker");
    await tabs[0].say("walk");
    await marked(tabs, "stopped", "Stopped after 2 steps");
  },

  async half_is_marked({ tab, another, room }) {
    await fetch(`${given.page}/agents/gallery/${room}/cut`, { method: "POST" });
    const tabs = await two({ tab, another, room }, "gallery");
    await marked(tabs, "half", "This answer was cut off and is not complete.");
  },

  async progress_says_that_it_runs({ tab, another, room }) {
    const tabs = await two({ tab, another, room }, "mine");
    await tab.say("dig");
    for (const one of tabs) {
      await one.tool("dig", "progress").getByText("one metre").waitFor();
      await one.tool("dig", "progress").getByText("Running", { exact: true }).waitFor();
      same(await one.tool("dig", "progress").getByText("Done", { exact: true }).count(), 0, "cards that say it is done");
    }
    await picture(tab, "progress");
    await fetch(`${given.page}/agents/mine/${room}/go`, { method: "POST" });
    for (const one of tabs) {
      await one.tool("dig", "output-available").getByText("ten metres").waitFor();
      await one.tool("dig", "output-available").getByText("Done", { exact: true }).waitFor();
      await one.shows("That was deep.");
    }
  },

  async enter_while_it_streams({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    await tab.say("text 500 40");
    await tab.shows(/w3 /);
    await tab.say("text 2");
    const told = tab.page.getByRole("alert").getByText("Not sent yet");
    await told.waitFor();
    await picture(tab, "early");
    same(await tab.page.getByLabel("Message", { exact: true }).inputValue(), "text 2", "what was written");
    same(await tab.page.locator('[data-role="user"]').count(), 1, "questions");
    await tab.page.keyboard.press("Escape");
    await tab.quiet();
    await told.waitFor({ state: "detached" });
    await tab.page.keyboard.press("Enter");
    await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 2);
    await tab.quiet();
    same(await tab.prose(), "w0 w1", "the next answer");
  },

  async sources_pictures_and_lists({ tab, room }) {
    await tab.open(given.page, "gallery", room);
    await tab.say("show me");
    await tab.quiet();
    const see = async () => {
      const answer = tab.answers.last();
      const sources = answer.getByRole("region", { name: "Sources" }).getByRole("listitem");
      await sources.first().waitFor();
      same((await sources.allInnerTexts()).join(" | "), "About rocks lights.example | Sand sand.pdf", "sources");
      same(await sources.first().getByRole("link").getAttribute("href"), "https://lights.example/rocks", "link");
      const widths = await answer.locator("img").evaluateAll((all) => all.map((one) => one.naturalWidth));
      same(widths.join(), "8,8", "pictures that are shown"); // the one in the text, and the one beside it
      await answer.getByRole("link", { name: /Picture: a far picture from far.example/ }).waitFor();
      same(await answer.locator("ol > li > ul > li > ul > li").innerText(), "of granite", "a list in a list in a list");
      same(await answer.locator("ol").first().locator("> li").count(), 2, "numbered items");
      same(await answer.locator("ul > li > ul > li > ol > li").innerText(), "a number", "numbers in a list in a list");
    };
    await see();
    await picture(tab, "sources");
    await tab.reload();
    await see();
  },

  async the_stand_in_is_told({ tab, room }) {
    await tab.open(given.page, "demo", room);
    const told = tab.page.getByRole("note").getByText("The demo model answers, by a few rules. No language model is asked.");
    await told.waitFor();
    await tab.say("What can you do?");
    await tab.quiet();
    await told.waitFor(); // as long as one talks to it
    await tab.open(given.page, "think-peer", room);
    same(await tab.page.getByRole("note").count(), 0, "notes of an agent with a model of its own");
  },
};
