// Journeys through what happens underneath: the inspector, and the versions of an answer.

import { given, picture, same } from "./tab.mjs";

/** The inspector of a tab, in the words of someone who uses it. */
export class Panel {
  constructor(tab) {
    this.tab = tab;
    this.side = tab.page.getByRole("complementary", { name: "Inspector" });
  }

  async open() {
    await this.tab.button("Inspector").click();
    await this.side.waitFor();
  }

  async turnTo(name) {
    await this.side.getByRole("tab", { name }).click();
  }

  async types() {
    return this.side.locator(".chunks .type").allTextContents();
  }

  /** The numbers of all chunks that are shown, runs unfolded. */
  async numbers() {
    const labels = await this.side.locator(".chunks .seq").allTextContents();
    return labels.flatMap((label) => {
      const [from, to = from] = label.split("–").map(Number);
      return Array.from({ length: to - from + 1 }, (_, i) => from + i);
    });
  }

  turn(status) {
    return this.side.locator(`[data-turn][data-status="${status}"]`);
  }

  call(state) {
    return this.side.locator(`[data-call][data-state="${state}"]`);
  }

  event(type) {
    return this.side.getByRole("list", { name: "Events" }).getByText(type, { exact: true });
  }
}

const OPENING = ["start", "start-step", "tool-input-start", "tool-input-delta", "tool-input-available"];

export const journeys = {
  async inspector_shows_turns_calls_and_chunks({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    const panel = new Panel(tab);
    await panel.open();
    await panel.side.getByText("No turn yet").waitFor();
    await tab.say("tool 3");
    await tab.quiet();

    // The turn, its steps and what they took
    const turn = panel.turn("completed");
    await turn.getByText("20 in · 10 out").waitFor();
    await turn.getByText("2 steps").waitFor();
    await turn.locator("summary").click();
    same(await turn.locator(".steps tbody tr").count(), 2, "steps");
    const [ended, , ...tokens] = await turn.locator(".steps tbody tr").first().locator("td").allTextContents();
    same([ended, ...tokens].join(), "tool-calls,10,–,5", "the first step");

    // Its chunks, each number once
    await turn.getByRole("button", { name: "Show its chunks" }).click();
    await panel.side.getByText("finish", { exact: true }).waitFor();
    same((await panel.types()).slice(0, 5).join(), OPENING.join(), "chunks");
    const numbers = await panel.numbers();
    same(numbers.join(), numbers.map((_, i) => i).join(), "numbers");

    // The ledger
    await panel.turnTo("Calls");
    await panel.call("done").locator("summary").click();
    await panel.call("done").getByText('"value": "hi"').waitFor();
    await panel.call("done").getByText('"echoed": "hi"').waitFor();
    await tab.say("toolerr 2");
    await tab.quiet();
    await panel.call("failed").locator("summary").click();
    await panel.call("failed").getByText("tool exploded").waitFor();

    // All of it is the server's: a reload changes nothing, and the tab that was open is open
    await tab.reload();
    await panel.call("done").waitFor();
    same(await panel.side.locator("[data-call]").count(), 2, "calls after a reload");
    await panel.turnTo("Turns");
    await panel.turn("completed").first().getByText("20 in · 10 out").waitFor();
    same(await panel.turn("completed").count(), 2, "turns after a reload");
    await panel.turnTo("Chunks");
    const picks = panel.side.getByRole("combobox", { name: "Turn" });
    await picks.selectOption({ index: 1 });
    await panel.side.getByText("finish", { exact: true }).waitFor();
    same((await panel.numbers()).join(), numbers.join(), "numbers after a reload");
  },

  async inspector_follows_a_turn({ tab, room }) {
    await tab.open(given.page, "think-peer", room);
    const panel = new Panel(tab);
    await panel.open();
    await panel.turnTo("Events");
    await panel.side.getByText("Live", { exact: true }).waitFor();
    await tab.say("text 500 40");
    await panel.event("chat:turn:start").waitFor();
    await panel.event("chat:step:start").waitFor();
    same(await panel.event("chat:turn:finish").count(), 0, "ends of a turn that runs");
    await panel.turnTo("Turns");
    await panel.turn("running").waitFor();
    await panel.turnTo("Chunks");
    await panel.side.getByText("w3 w4").waitFor();
    await tab.button("Stop").click();
    await tab.quiet();
    await panel.turnTo("Turns");
    await panel.turn("aborted").waitFor();
    await panel.turnTo("Events");
    await panel.event("chat:turn:finish").waitFor();
    same(await panel.event("chat:turn:start").count(), 1, "starts");
    await panel.side.getByLabel("Filter").fill("turn:finish");
    await panel.event("chat:turn:start").waitFor({ state: "detached" });
    await panel.event("chat:turn:finish").click();
    await panel.side.getByText('"status": "aborted"').waitFor();
    // What happened is told to whoever comes later, each event once
    await tab.reload();
    await panel.event("chat:turn:finish").waitFor();
    same(await panel.event("chat:turn:finish").count(), 1, "ends after a reload");
    await tab.button("Clear the events").click();
    await panel.side.getByText("Nothing happened yet").waitFor();
  },

  async inspector_shows_frames_and_state({ tab, room }) {
    await tab.open(given.page, "think-peer", room, "&inspect=frames");
    const panel = new Panel(tab);
    await tab.say("text 3");
    await tab.quiet();
    await panel.side.getByText("request", { exact: true }).waitFor();
    await panel.side.getByLabel("Filter").fill("messages");
    await panel.side.getByText("chat_messages", { exact: true }).first().waitFor();
    await panel.turnTo("State");
    await panel.side.getByText('"count": 0').waitFor();
  },

  async inspector_by_keyboard_and_on_a_phone({ tab, another, room }) {
    await tab.open(given.page, "think-peer", room);
    const panel = new Panel(tab);
    await tab.say("tool 3");
    await tab.quiet();
    await tab.button("Inspector").press("Enter");
    const tabs = panel.side.getByRole("tab");
    await tabs.first().focus();
    for (const name of ["Calls", "Files", "Family", "Memory", "Skills", "Extensions", "Servers", "Deliveries", "Chunks", "Events", "Frames", "State", "Turns"]) {
      await tab.page.keyboard.press("ArrowRight");
      const chosen = panel.side.getByRole("tab", { selected: true });
      same(await chosen.textContent(), name, "tab");
      same(await chosen.evaluate((node) => node === document.activeElement), true, `focus on ${name}`);
      same(await panel.side.getByRole("tabpanel", { name }).count(), 1, `panel of ${name}`);
      const nameless = await panel.side.evaluate((side) =>
        [...side.querySelectorAll("button, input, select, textarea")]
          .filter((node) => !(node.getAttribute("aria-label") || node.labels?.length || node.textContent.trim()))
          .map((node) => node.outerHTML.slice(0, 120)),
      );
      same(nameless.join("\n"), "", `controls without a name in ${name}`);
    }
    await tab.page.keyboard.press("End");
    same(await panel.side.getByRole("tab", { selected: true }).textContent(), "State", "last tab");

    // A turn opens and closes by keyboard, too
    await panel.turnTo("Turns");
    await panel.turn("completed").locator("summary").press("Enter");
    await panel.turn("completed").getByRole("button", { name: "Show its chunks" }).press("Enter");
    await panel.side.getByText("finish", { exact: true }).waitFor();

    // On a phone it lies over the conversation, fits, and gives the focus back
    const phone = await another({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
    await phone.open(given.page, "think-peer", room);
    const held = new Panel(phone);
    await phone.button("Inspector").tap();
    for (const name of ["Turns", "Calls", "Files", "Memory", "Skills", "Extensions", "Servers", "Chunks", "Events", "Frames", "State"]) {
      await held.side.getByRole("tab", { name }).tap();
      same(await phone.page.evaluate(() => document.documentElement.scrollWidth), 390, `width of ${name}`);
    }
    await phone.page.keyboard.press("Escape");
    await held.side.waitFor({ state: "detached" });
    const back = await phone.page.evaluate(() => document.activeElement.getAttribute("aria-label"));
    same(back, "Inspector", "focus afterwards");
  },

  async versions_after_a_reload({ tab, another, room }) {
    const question = `idea ${room}`;
    await tab.open(given.page, "muse", room);
    await tab.say(question);
    await tab.shows("Idea number 1.");
    await tab.quiet();
    for (const count of [2, 3]) {
      await tab.button("Answer again").click();
      await tab.shows(`Idea number ${count}.`);
      await tab.page.getByText(`${count} / ${count}`).waitFor();
    }

    // After a reload the server still knows the others
    await tab.reload();
    await tab.page.getByText("3 / 3").waitFor();
    same(await tab.prose(), "Idea number 3.", "answer after a reload");
    await tab.button("Earlier answer").click();
    await tab.shows("Idea number 2.");
    await tab.page.getByText("The conversation goes on from 3.").waitFor();
    same(await tab.button("Answer again").count(), 0, "ways to answer again while another one is looked at");
    await tab.button("Earlier answer").click();
    await tab.page.getByText("1 / 3").waitFor();
    same(await tab.prose(), "Idea number 1.", "the first");
    await tab.button("Later answer").click();
    await tab.button("Later answer").click();
    await tab.page.getByText("3 / 3").waitFor();
    same(await tab.prose(), "Idea number 3.", "the last again");

    // Looking changed nothing for anybody
    const second = await another();
    await second.open(given.page, "muse", room);
    await second.page.getByText("3 / 3").waitFor();
    same(await second.prose(), "Idea number 3.", "in another tab");
  },

  async going_on_from_another_version({ tab, another, room }) {
    await tab.open(given.page, "muse", room);
    await tab.say(`idea ${room}`);
    await tab.shows("Idea number 1.");
    await tab.quiet();
    await tab.button("Answer again").click();
    await tab.page.getByText("2 / 2").waitFor();
    const second = await another();
    await second.open(given.page, "muse", room);
    await second.shows("Idea number 2.");

    // When the first version is chosen, every tab shows it and the agent goes on from it
    await tab.button("Earlier answer").click();
    await tab.button("Go on from this one").click();
    await tab.button("Go on from this one").waitFor({ state: "detached" });
    await second.shows("Idea number 1.");
    for (const one of [tab, second]) await one.page.getByText("1 / 2").waitFor();
    await tab.say("and?");
    await tab.shows("You like: Idea number 1.");
    await tab.quiet();

    // And so it is after a reload; the other version is still there to look at
    await tab.reload();
    await tab.page.getByText("1 / 2").waitFor();
    same(await tab.answers.first().locator(".prose").innerText(), "Idea number 1.", "chosen answer");
    same(await tab.prose(), "You like: Idea number 1.", "what followed");
    await tab.button("Later answer").click();
    await tab.answers.first().getByText("Idea number 2.").waitFor();
    await tab.button("Go on from this one").click();
    await tab.page.getByText("2 / 2").waitFor();
    await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 1);
    same(await tab.prose(), "Idea number 2.", "back on the other branch");
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
    const panel = new Panel(tab);
    await panel.side.locator("summary").last().click();
    await picture(tab, "inspector");
    await panel.turnTo("Calls");
    await panel.side.locator("summary").first().click();
    await picture(tab, "calls");
    await panel.turnTo("Chunks");
    await panel.side.getByText("finish", { exact: true }).waitFor();
    await picture(tab, "chunks");
    for (const name of ["events", "frames"]) {
      await panel.turnTo(name);
      await page.locator(".panel").evaluate((node) => (node.scrollTop = node.scrollHeight));
      await picture(tab, name);
    }
    await page.emulateMedia({ colorScheme: "dark" });
    await panel.turnTo("Turns");
    await picture(tab, "dark");
    await page.emulateMedia({ colorScheme: "light" });
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
    await phone.button("Inspector").tap();
    await new Panel(phone).turn("completed").last().waitFor();
    await picture(phone, "phone-inspector");
    await phone.button("Close the inspector").tap();
    await phone.button("Conversations").tap();
    await picture(phone, "phone-list");
    const muse = await another();
    await muse.open(given.page, "muse", room);
    await muse.say("What could I draw?");
    await muse.shows("Idea number 1.");
    await muse.quiet();
    await muse.button("Answer again").click();
    await muse.page.getByText("2 / 2").waitFor();
    await muse.button("Earlier answer").click();
    await muse.button("Go on from this one").waitFor();
    await picture(muse, "versions");
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
