// Journeys to the skills of an agent: the inspector's Skills tab.

import { Panel } from "./inspecting.mjs";
import { given, picture, same } from "./tab.mjs";

const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };

/** The Skills tab, in the words of someone who uses it. */
class Skills extends Panel {
  async look() {
    await this.open();
    await this.turnTo("Skills");
  }

  skill(name, active) {
    return this.side.locator(`[data-skill="${name}"]${active === undefined ? "" : `[data-active="${active}"]`}`);
  }

  source(id) {
    return this.side.locator(`[data-source="${id}"]`);
  }

  async unfold(name) {
    await this.skill(name).locator("summary").first().click();
  }

  async activate(name) {
    await this.tab.button(`Activate ${name}`).click();
  }

  file(path) {
    return this.side.locator(`[data-resource="${path}"]`);
  }
}

const card = (tab, state = "output-available") => tab.tool("activate_skill", state);

export const journeys = {
  async skills_are_seen_read_and_activated({ tab, another, room }) {
    await tab.open(given.page, "scholar", room);
    const panel = new Skills(tab);
    await panel.look();
    await panel.skill("release-notes", false).getByText("Use it when somebody asks what is new").waitFor();
    await panel.skill("invoice-check", false).waitFor();

    // What was skipped and what failed say why
    const odd = panel.side.locator('[data-level="error"]');
    await odd.filter({ hasText: "nameless" }).getByText("error", { exact: true }).waitFor();
    await panel.source("team-wiki").getByText("failed", { exact: true }).waitFor();
    await panel.source("team-wiki").getByText("the wiki does not answer").waitFor();
    await fetch(`${given.page}/agents/scholar/${room}/mend`, { method: "POST" });
    await tab.button("Look again").click();
    await panel.skill("meeting-notes").waitFor();
    await panel.source("team-wiki").getByText("read", { exact: true }).waitFor();
    same(await panel.source("team-wiki").locator(".tool-error").count(), 0, "failures of a source that answers");

    // Its instructions and its files
    await panel.unfold("release-notes");
    await panel.skill("release-notes").getByText("One line for each change").waitFor();
    await panel.skill("release-notes").getByText("the docs team", { exact: true }).waitFor();
    await panel.file("references/style.md").getByRole("button").click();
    await panel.file("references/style.md").getByText("Friendly, and short.").waitFor();
    await panel.file("assets/square.png").getByRole("button").click();
    await panel.file("assets/square.png").getByText("It is no text: image/png").waitFor();
    await panel.file("references/style.md").getByText("Friendly, and short.").waitFor({ state: "detached" });

    // What scripts may do, and whether they run
    const rights = panel.side.getByLabel("What scripts may do");
    await rights.getByText("may be read", { exact: true }).waitFor();
    await rights.getByText("api.example.com", { exact: true }).waitFor();
    await rights.getByText("weather", { exact: true }).waitFor();
    await tab.button("Try what runs here").click();
    await panel.side.locator('[data-language="JavaScript and TypeScript"]').getByText("runs here").waitFor();

    // By hand, for this conversation: in every window, and also after a reload
    const second = await another();
    await second.open(given.page, "scholar", room, "&inspect=skills");
    const other = new Skills(second);
    await other.skill("release-notes", false).waitFor();
    await panel.activate("release-notes");
    for (const one of [panel, other]) await one.skill("release-notes", true).waitFor();
    for (const one of [tab, second]) {
      await one.page.locator('[data-role="user"]').getByText("Activate the skill release-notes.").waitFor();
      await card(one).waitFor();
    }
    await tab.reload();
    await panel.skill("release-notes", true).waitFor();
    same(await card(tab).count(), 1, "activations after a reload");
    await panel.activate("release-notes");
    await panel.skill("release-notes").getByText("these instructions are there already").waitFor();
    same(await card(tab).count(), 1, "activations after the second");

    // And by the model
    await tab.say('activate_skill {"name": "invoice-check"}');
    await tab.shows("Done.");
    await tab.quiet();
    await panel.skill("invoice-check", true).waitFor();
    await tab.say('activate_skill {"name": "release-notes"}');
    await tab.page.getByText("is active already: its instructions are above").waitFor();
    const nameless = await panel.side.evaluate((side) =>
      [...side.querySelectorAll("button, input, a[href]")]
        .filter((node) => !(node.getAttribute("aria-label") || node.labels?.length || node.textContent.trim()))
        .map((node) => node.outerHTML.slice(0, 120)),
    );
    same(nameless.join("\n"), "", "controls without a name");
  },

  async an_agent_without_skills({ tab, room }) {
    await tab.open(given.page, "desk", room);
    const panel = new Skills(tab);
    await panel.look();
    await panel.side.getByText("This agent has no skills.").waitFor();
    same(await panel.side.getByRole("button", { name: /Activate/ }).count(), 0, "skills to activate");
  },

  async pictures_of_skills({ tab, another, room }) {
    if (!given.pictures) return "skipped";
    await tab.page.setViewportSize({ width: 1280, height: 1000 });
    await tab.open(given.page, "scholar", room);
    const panel = new Skills(tab);
    await panel.look();
    await panel.activate("release-notes");
    await panel.skill("release-notes", true).waitFor();
    await panel.turnTo("Turns");
    await panel.turnTo("Skills"); // without what was said about activating
    await panel.unfold("release-notes");
    await panel.skill("release-notes").getByText("One line for each change").waitFor();
    await panel.file("references/style.md").getByRole("button").click();
    await panel.file("references/style.md").getByText("Friendly, and short.").waitFor();
    await picture(tab, "skills");
    await panel.unfold("release-notes");
    await tab.button("Try what runs here").click();
    await panel.side.locator("[data-language]").first().waitFor();
    await tab.page.emulateMedia({ colorScheme: "dark" });
    await picture(tab, "skills-dark");
    const phone = await another(PHONE);
    await phone.open(given.page, "scholar", room, "&inspect=skills");
    await new Skills(phone).skill("release-notes", true).waitFor();
    await picture(phone, "phone-skills");
  },
};
