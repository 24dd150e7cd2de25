// Journeys to the extensions of an agent: the inspector's Extensions tab.

import { Panel } from "./inspecting.mjs";
import { given, picture, same } from "./tab.mjs";

const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };
const WORDS = `({
  tools: {
    count: {
      description: "Count words",
      parameters: { text: { type: "string" } },
      required: ["text"],
      execute: async ({ text }) => text.trim().split(/\\s+/).length,
    },
  },
})`;

/** The Extensions tab, in the words of someone who uses it. */
class Extensions extends Panel {
  async look() {
    await this.open();
    await this.turnTo("Extensions");
  }

  one(name) {
    return this.side.locator(`[data-extension="${name}"]`);
  }

  async unfold(name) {
    await this.one(name).locator("summary").first().click();
  }

  get form() {
    return this.side.getByRole("form", { name: "Load an extension" });
  }

  async load(name, source, rights = {}) {
    await this.form.getByLabel("Name").fill(name);
    await this.form.getByLabel("Source").fill(source);
    for (const [label, value] of Object.entries(rights)) await this.form.getByLabel(label).selectOption(value);
    await this.form.getByRole("button", { name: "Load" }).click();
  }

  async unload(name) {
    await this.tab.button(`Unload ${name}`).click();
    await this.tab.button("Unload").last().click();
  }

  async names() {
    return (await this.side.locator("[data-extension]").evaluateAll((all) => all.map((one) => one.dataset.extension))).join(" ");
  }
}

async function say(tab, line) {
  const before = await tab.answers.count();
  await tab.say(line);
  await tab.page.waitForFunction((count) => document.querySelectorAll('[data-role="assistant"]').length > count, before);
  await tab.shows("Done.");
  await tab.quiet();
}

export const journeys = {
  async extensions_are_seen_loaded_and_unloaded({ tab, another, room }) {
    await tab.open(given.page, "workshop", room);
    const panel = new Extensions(tab);
    await panel.look();
    await panel.one("glossary").getByText("of the program", { exact: true }).waitFor();
    await panel.one("stopwatch").getByText("of the program, without a sandbox").waitFor();
    same(await panel.names(), "glossary stopwatch", "the order");
    await panel.side.locator(`[data-failed="the extension 'translator'"]`).getByText("No installed package has the extension").waitFor();

    // Rights, tools, hooks, what it said and what went wrong
    await say(tab, 'glossary_explain {"word": "loom"}');
    await panel.unfold("glossary");
    const glossary = panel.one("glossary");
    await glossary.getByText("It may read the files of the workspace.").waitFor();
    await glossary.getByText("It may fetch from api.example.com.").waitFor();
    await glossary.getByText("It may keep values of its own.").waitFor();
    await glossary.getByText("glossary_explain", { exact: true }).waitFor();
    await glossary.getByText("after_tool_call", { exact: true }).waitFor();
    await glossary.getByText("Source", { exact: true }).click();
    await glossary.getByRole("region", { name: "Source of glossary" }).getByText("Explain a word that is used in this house").waitFor();
    await glossary.locator(".value").getByText("somebody asked for loom").waitFor();
    await glossary.locator(".value").getByText("no room for glossary_explain").waitFor();
    await panel.unfold("stopwatch");
    await panel.one("stopwatch").getByText("It may do whatever the server may do.").waitFor();
    await panel.one("stopwatch").getByText("glossary_explain: success is True").waitFor();

    // A person loads one; its tool is there in the next turn, and after a reload
    await tab.page.getByText("Load an extension", { exact: true }).click();
    await panel.load("", WORDS);
    await panel.form.getByRole("alert").getByText("Give it a name.").waitFor();
    await panel.load("word-tools", "({ count: 1 })");
    await panel.form.getByRole("alert").getByText("Invalid extension source format").waitFor();
    same(await panel.names(), "glossary stopwatch", "what is loaded after mistakes");
    await panel.load("word-tools", WORDS, { "Files of the workspace": "read" });
    await panel.one("word-tools").getByText("loaded by a person or code").waitFor();
    same(await panel.names(), "glossary stopwatch word-tools", "the order after loading");
    await say(tab, 'word_tools_count {"text": "one two three"}');
    await tab.tool("word_tools_count", "output-available").getByText("3").first().waitFor();
    const second = await another();
    await second.open(given.page, "workshop", room, "&inspect=extensions");
    const other = new Extensions(second);
    await other.unfold("word-tools");
    await other.one("word-tools").getByText("It may read the files of the workspace.").waitFor();

    // Unloaded, it is gone here and there; those of the program say that they come back
    await other.unload("word-tools");
    await other.one("word-tools").waitFor({ state: "detached" });
    await tab.reload();
    await panel.one("stopwatch").waitFor();
    same(await panel.names(), "glossary stopwatch", "what is loaded after unloading");
    await panel.unfold("stopwatch");
    await tab.button("Unload stopwatch").click();
    await tab.page.locator("dialog[open]").getByText("until it starts the next time").waitFor();
    await tab.button("Unload").last().click();
    await panel.one("stopwatch").waitFor({ state: "detached" });
    const nameless = await panel.side.evaluate((side) =>
      [...side.querySelectorAll("button, input, select, textarea, a[href]")]
        .filter((node) => !(node.getAttribute("aria-label") || node.labels?.length || node.textContent.trim()))
        .map((node) => node.outerHTML.slice(0, 120)),
    );
    same(nameless.join("\n"), "", "controls without a name");
    tab.troubles = tab.troubles.filter((text) => !/status of 400/.test(text)); // the browser's own words for it
  },

  async an_agent_without_extensions({ tab, room }) {
    await tab.open(given.page, "desk", room);
    const panel = new Extensions(tab);
    await panel.look();
    await panel.side.getByText("This agent has no extensions.").waitFor();
  },

  async pictures_of_extensions({ tab, another, room }) {
    if (!given.pictures) return "skipped";
    await tab.page.setViewportSize({ width: 1280, height: 1000 });
    await tab.open(given.page, "workshop", room);
    await say(tab, 'glossary_explain {"word": "loom"}');
    const panel = new Extensions(tab);
    await panel.look();
    await panel.unfold("glossary");
    await panel.one("glossary").locator(".value").getByText("somebody asked for loom").waitFor();
    await picture(tab, "extensions");
    await panel.unfold("glossary");
    await panel.unfold("stopwatch");
    await tab.page.getByText("Load an extension", { exact: true }).click();
    await panel.form.getByLabel("Name").fill("word-tools");
    await panel.form.getByLabel("Source").fill(WORDS);
    await tab.page.emulateMedia({ colorScheme: "dark" });
    await picture(tab, "extensions-dark");
    const phone = await another(PHONE);
    await phone.open(given.page, "workshop", room, "&inspect=extensions");
    await new Extensions(phone).one("glossary").locator("summary").first().tap();
    await picture(phone, "phone-extensions");
  },
};
