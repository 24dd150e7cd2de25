// Journeys to agents that have agents: cards of runs, the conversations of children, families.

import { Panel } from "./inspecting.mjs";
import { Server } from "./server.mjs";
import { given, picture, same } from "./tab.mjs";

const card = (tab, status) => tab.page.locator(`[data-run]${status ? `[data-status="${status}"]` : ""}`);
const doing = (tab, tool, state) => card(tab).locator(`[data-tool="${tool}"][data-state="${state}"]`);

/** Let the clerk of a run go on. */
async function go(tab, room, page = given.page) {
  const run = await card(tab).first().getAttribute("data-run");
  const answer = await fetch(`${page}/agents/office/${room}/sub/clerk/${encodeURIComponent(run)}/go`, { method: "POST" });
  same(answer.status, 200, "going on");
}

/** A clerk that digs, and waits. */
async function digging(tab, room, page = given.page) {
  await tab.open(page, "office", room);
  await tab.say('clerk {"query": "dig"}');
  await card(tab, "running").waitFor();
  await doing(tab, "dig", "progress").getByText("one metre").first().waitFor();
}

/** A run that is over is drawn once, with all of its parts, however it came here. */
async function over(tab) {
  await card(tab, "completed").waitFor();
  same(await card(tab).count(), 1, "cards");
  await card(tab).locator("summary").first().getByText("2 steps · 1 call · 50 tokens").waitFor();
  if (!(await card(tab).locator(".run-parts").isVisible())) await card(tab).locator("summary").first().click();
  await doing(tab, "dig", "output-available").waitFor();
  same(await doing(tab, "dig", "output-available").count(), 1, "calls of the child");
  same(await card(tab).locator(".run-parts > .prose").allTextContents().then((all) => all.join("|")), "ten metres", "what the child said");
}

export const journeys = {
  async a_run_is_a_card_that_grows({ tab, another, room }) {
    await digging(tab, room);
    const run = card(tab);
    await run.getByRole("heading", { name: "The clerk" }).waitFor();
    await run.locator(".run-about").getByText("dig").waitFor();
    await run.locator("header .took").getByText(/^[0-9]+ s$/).waitFor();
    await run.locator("header .took").getByText(/^[1-9][0-9]* s$/).waitFor(); // and it counts on
    const late = await another();
    await late.open(given.page, "office", room);
    await doing(late, "dig", "progress").getByText("one metre").first().waitFor();
    await go(tab, room);
    for (const one of [tab, late]) {
      await over(one);
      await one.answers.last().locator(":scope > .prose", { hasText: "ten metres" }).waitFor();
      await one.quiet();
    }
    await tab.reload();
    await card(tab, "completed").waitFor();
    await card(tab).locator(".run-parts").waitFor({ state: "detached" }); // it was over before, so it is folded
    await over(tab);
  },

  async a_reload_in_the_middle_of_a_run({ tab, room }) {
    await digging(tab, room);
    await tab.reload();
    await card(tab, "running").waitFor();
    await doing(tab, "dig", "progress").getByText("one metre").first().waitFor();
    same(await doing(tab, "dig", "progress").count(), 1, "calls of the child after a reload");
    await go(tab, room);
    await over(tab);
    await tab.quiet();
  },

  async into_the_conversation_of_a_child_and_back({ tab, room }) {
    await digging(tab, room);
    await tab.button("Open the conversation of The clerk").click();
    await tab.connected();
    const way = tab.page.getByRole("navigation", { name: "The way back" });
    await way.getByRole("heading", { name: "The clerk" }).waitFor();
    await tab.page.locator('[data-role="user"]').getByText("dig", { exact: true }).waitFor();
    await tab.tool("dig", "progress").waitFor();
    const address = tab.page.url();
    if (!address.includes("sub=clerk")) throw new Error(`not in the address: ${address}`);

    // It is a place like any other: a reload stays there, the run goes on, and one may talk to the child.
    await tab.reload();
    await way.getByRole("heading", { name: "The clerk" }).waitFor();
    await tab.tool("dig", "progress").waitFor();
    const run = new URL(address).searchParams.get("sub").slice("clerk/".length);
    await fetch(`${given.page}/agents/office/${room}/sub/clerk/${encodeURIComponent(run)}/go`, { method: "POST" });
    await tab.shows("ten metres");
    await tab.quiet();
    await tab.say('note {"text": "hello"}');
    await tab.answers.last().locator(":scope > .prose", { hasText: "noted hello" }).waitFor();
    await tab.quiet();
    const panel = new Panel(tab);
    await panel.open();
    await panel.turnTo("Calls");
    await panel.side.locator("[data-call]").nth(1).waitFor();
    same(await panel.side.locator("[data-call]").count(), 2, "calls in the journal of the child");
    await tab.button("Close the inspector").click();

    await way.getByRole("button").click();
    await tab.connected();
    await way.waitFor({ state: "detached" });
    await card(tab, "completed").waitFor();
    await tab.page.goBack();
    await way.getByRole("heading", { name: "The clerk" }).waitFor();
    await tab.page.goForward();
    await card(tab, "completed").waitFor();
  },

  async one_run_is_stopped_and_its_parent_goes_on({ tab, room }) {
    await digging(tab, room);
    await tab.button("Stop The clerk").click();
    await card(tab, "aborted").getByText("Stopped", { exact: true }).waitFor();
    await tab.answers.last().locator(":scope > .prose", { hasText: '"status":"aborted"' }).waitFor();
    await tab.quiet();
    await tab.reload();
    await card(tab, "aborted").getByText("A person stopped it.").waitFor();
    same(await tab.button("Stop The clerk").count(), 0, "buttons that stop what is over");
  },

  async stopping_the_answer_stops_the_child({ tab, room }) {
    await digging(tab, room);
    await tab.button("Stop").click();
    await card(tab, "aborted").waitFor();
    await tab.quiet();
  },

  async an_approval_inside_a_child_is_given_beside_its_run({ tab, another, room }) {
    await tab.open(given.page, "office", room);
    await tab.say('clerk {"query": "stamp"}');
    const asking = card(tab, "waiting");
    await asking.getByText("Waits for you").waitFor();
    await tab.page.locator(".notice").getByText("The clerk waits for your answer.").waitFor();
    const late = await another();
    await late.open(given.page, "office", room);
    await card(late, "waiting").getByRole("button", { name: "Approve" }).waitFor();
    await asking.getByRole("button", { name: "Approve" }).click();
    for (const one of [tab, late]) {
      await card(one, "completed").waitFor();
      await one.answers.last().locator(":scope > .prose", { hasText: "stamped" }).waitFor();
      await one.quiet();
      same(await one.button("Approve").count(), 0, "buttons for what was answered");
    }
  },

  async a_no_inside_a_child_is_a_no({ tab, room }) {
    await tab.open(given.page, "office", room);
    await tab.say('clerk {"query": "stamp"}');
    await card(tab, "waiting").getByRole("button", { name: "Deny" }).click();
    await card(tab, "completed").waitFor();
    await tab.quiet();
    same(await tab.button("Approve").count(), 0, "buttons for what was answered");
  },

  async a_form_inside_a_child_is_filled_in_beside_its_run({ tab, room }) {
    await tab.open(given.page, "office", room);
    await tab.say('clerk {"query": "twice"}');
    await card(tab, "waiting").getByLabel("name").fill("Ada");
    await card(tab).getByRole("button", { name: "Send" }).click();
    await card(tab, "waiting").getByText("Is Ada right?").waitFor();
    await card(tab).getByRole("button", { name: "Yes" }).click();
    await card(tab, "completed").waitFor();
    await tab.answers.last().locator(":scope > .prose", { hasText: "Told: Ada" }).waitFor();
    await tab.quiet();
  },

  async a_question_inside_a_child_outlives_its_server({ tab, room }) {
    if (!given.family) return "skipped";
    const server = new Server(given.family);
    try {
      await server.start();
      await tab.open(server.page, "office", room);
      await tab.say('clerk {"query": "stamp"}');
      await card(tab, "waiting").getByRole("button", { name: "Approve" }).waitFor();
      await server.kill();
      await server.start();
      await tab.reload();
      await card(tab, "waiting").getByRole("button", { name: "Approve" }).click();
      await card(tab, "completed").waitFor();
      await tab.answers.last().locator(":scope > .prose", { hasText: "stamped" }).waitFor();
      await tab.quiet();
      same(await card(tab).count(), 1, "cards");
    } finally {
      await server.kill();
    }
  },

  async several_runs_of_one_call_stand_in_their_order({ tab, room }) {
    await tab.open(given.page, "office", room);
    await tab.say("survey");
    const titles = async () => {
      await card(tab, "completed").nth(2).waitFor();
      return (await card(tab).locator("h3").allTextContents()).join(", ");
    };
    same(await titles(), "Clerk 1, Clerk 2, Clerk 3", "runs");
    await tab.quiet();
    await tab.reload();
    same(await titles(), "Clerk 1, Clerk 2, Clerk 3", "runs after a reload");
    same(await card(tab).count(), 3, "cards after a reload");
  },

  async families_in_the_list_and_in_the_inspector({ tab, room }) {
    await tab.open(given.page, "office", room);
    await tab.say("survey");
    await card(tab, "completed").nth(2).waitFor();
    await tab.quiet();
    const below = tab.page.locator(".conversation", { has: tab.page.locator('[aria-current="page"]') }).locator(".children");
    await below.getByText("3 agents below").waitFor();
    same(await below.getByRole("button").count(), 0, "children that are shown folded");
    await below.locator("summary").click();
    await below.getByRole("button", { name: "Clerk 2" }).click();
    await tab.page.getByRole("heading", { name: "Clerk 2" }).waitFor();
    await tab.connected();
    await tab.shows("noted 2");
    await tab.page.locator('.children [aria-current="page"]').getByText("Clerk 2").waitFor();

    const panel = new Panel(tab);
    await panel.open();
    await panel.turnTo("Family");
    const tree = panel.side.locator(".family");
    await panel.side.getByText("a family of 4").waitFor();
    const survey = tree.locator('[data-call="survey"]');
    same(await survey.locator("[data-run]").count(), 3, "runs of the call");
    same(await survey.locator('[data-call="note"]').count(), 3, "calls of the children");
    await survey.locator(".here").getByText("Clerk 2").waitFor();
    await survey.locator(".when").first().getByText(/^\+\d+ m?s · /).waitFor();
    await tree.getByRole("button", { name: "Clerk 3" }).click();
    await tab.page.getByRole("heading", { name: "Clerk 3" }).waitFor();
    await tab.shows("noted 3");
  },

  async how_far_a_child_says_it_is({ tab, room }) {
    // What a child reports, slipped in behind what this one says.
    const reports = [
      { type: "data-agent-progress", id: "p", transient: true, data: { fraction: 0.4, phase: "Digging", message: "soft ground" } },
      { type: "data-agent-milestone", data: { name: "groundwater", sequence: 1, at: Date.now() - 60_000 } },
    ];
    await tab.page.routeWebSocket(/\/agents\/office\//, (socket) => {
      const server = socket.connectToServer();
      server.onMessage((text) => {
        socket.send(text);
        const frame = JSON.parse(text);
        if (frame.type !== "agent-tool-event" || !frame.event.body?.includes("one metre")) return;
        for (const report of reports) {
          socket.send(JSON.stringify({ ...frame, event: { ...frame.event, body: JSON.stringify(report) } }));
        }
      });
    });
    await digging(tab, room);
    await card(tab).getByText("Digging: soft ground").waitFor();
    same(await card(tab).getByRole("progressbar").getAttribute("value"), "0.4", "how far it is");
    await card(tab).getByText("Reached: groundwater").waitFor();
    await go(tab, room);
    await card(tab, "completed").waitFor();
    same(await card(tab).getByRole("progressbar").count(), 0, "bars of a run that is over");
    await tab.quiet();
  },

  async pictures_of_families({ tab, another, room }) {
    if (!given.pictures) return "skipped";
    const { page } = tab;
    await page.setViewportSize({ width: 1280, height: 960 });
    await tab.open(given.page, "guide", room);
    await tab.say("Ask the researcher about Whales and Ships");
    await card(tab, "running").nth(1).waitFor();
    await card(tab).locator('[data-tool="research"][data-state="progress"]').nth(1).waitFor();
    await page.locator("header .took").nth(1).waitFor();
    await picture(tab, "runs");
    await tab.button("Open the conversation of Researcher").first().click();
    await tab.shows("three books about Whales");
    await tab.quiet();
    await picture(tab, "child");
    await page.getByRole("navigation", { name: "The way back" }).getByRole("button").click();
    await card(tab, "completed").nth(1).waitFor();
    await tab.quiet();
    await tab.say("Ask the researcher about Lighthouses, and borrow a book");
    await card(tab, "waiting").getByRole("button", { name: "Approve" }).waitFor();
    await tab.button("Go to the end").waitFor({ state: "detached" });
    await tab.page.waitForFunction(() => {
      const { scrollHeight, scrollTop, clientHeight } = document.querySelector(".transcript");
      return scrollHeight - scrollTop - clientHeight < 2; // the question is in sight
    });
    await picture(tab, "run-asks");
    await card(tab, "waiting").getByRole("button", { name: "Approve" }).click();
    await card(tab, "completed").nth(2).waitFor();
    await tab.quiet();
    const panel = new Panel(tab);
    await panel.open();
    await panel.turnTo("Family");
    await panel.side.getByText("a family of 4").waitFor();
    await page.locator(".children summary").first().click();
    await picture(tab, "family");
    await page.emulateMedia({ colorScheme: "dark" });
    await picture(tab, "family-dark");
    const phone = await another({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
    await phone.open(given.page, "guide", room);
    await card(phone, "completed").nth(2).waitFor();
    await picture(phone, "phone-runs");
  },
};
