// Journeys to code that a model writes, whose calls are seen as they happen, and to pages that it has open.

import { given, picture, same } from "./tab.mjs";

const card = (tab, name) => tab.page.locator(`[data-tool="${name}"]`).last();
const call = (tab, n) => card(tab, "execute").getByRole("list", { name: "Calls" }).getByRole("listitem").nth(n);
const go = (room) => fetch(`${given.page}/agents/dispatcher/${room}/go`, { method: "POST" });

export const journeys = {
  async code_is_watched_while_it_calls_tools({ tab, room }) {
    await tab.open(given.page, "dispatcher", room);
    await tab.say("Remind everybody whose order is late");
    const done = card(tab, "execute");
    await call(tab, 1).getByText("runs", { exact: true }).waitFor();
    await call(tab, 0).getByText("done", { exact: true }).waitFor();
    same(await call(tab, 1).locator("summary code").textContent(), "tools.remind", "what runs");
    same(await call(tab, 1).locator(".brief").textContent(), "order=A-17", "with what");
    await done.getByText("A-17 is late by 9 days").waitFor();
    same(await call(tab, 2).count(), 0, "calls to come");
    await done.getByRole("heading", { name: "execute" }).waitFor();
    await go(room);
    await tab.quiet();
    const see = async () => {
      await call(tab, 2).getByText("done", { exact: true }).waitFor();
      same(await call(tab, 3).count(), 0, "calls");
      same(await done.getByLabel("Code", { exact: true }).textContent().then((text) => text.split("\n")[0]), 'orders = await tools.orders(since="2026-11-01")', "code");
      same(await done.getByLabel("What it printed").locator("pre").allTextContents().then((all) => all.join("|")), "A-17 is late by 9 days|B-3 is late by 6 days", "what it printed");
      same(JSON.stringify(JSON.parse(await done.getByLabel("Result").textContent())), '{"late":2,"of":3}', "result");
      await call(tab, 2).locator("summary").click();
      await call(tab, 2).getByText("A letter about B-3 is on its way.").waitFor();
    };
    await see();
    await tab.reload();
    await see();
  },

  async a_person_agrees_to_a_call_in_the_middle_of_code({ tab, room }) {
    await tab.open(given.page, "dispatcher", room);
    await tab.say("Pay the first one back");
    const asked = card(tab, "execute");
    await asked.locator("form.question").waitFor();
    await asked.getByText('Code wants to call tools.refund').waitFor();
    await asked.getByLabel("Code", { exact: true }).filter({ hasText: "await tools.refund" }).waitFor();
    await tab.quiet();
    const see = async () => {
      await call(tab, 0).getByText("done", { exact: true }).waitFor();
      await call(tab, 1).getByText("asks a person", { exact: true }).waitFor();
    };
    await see();
    await tab.reload();
    await see();
    await asked.locator("form.question").waitFor();
    await asked.locator("form.question button", { hasText: /^Yes$/ }).click();
    await call(tab, 1).getByText("done", { exact: true }).waitFor();
    await call(tab, 1).locator("summary").click();
    await call(tab, 1).getByText("30 EUR for A-17").waitFor();
    await tab.quiet();
  },

  async code_that_fails_says_what_failed({ tab, room }) {
    await tab.open(given.page, "dispatcher", room);
    await tab.say("Remind nobody");
    await call(tab, 0).getByText("failed", { exact: true }).waitFor();
    const failed = card(tab, "execute");
    await failed.getByLabel("What it printed").filter({ hasText: "so far so good" }).waitFor();
    await failed.getByLabel("Error", { exact: true }).filter({ hasText: "There is no order nowhere." }).waitFor();
    await failed.locator("header").getByText("Failed", { exact: true }).waitFor();
    await tab.quiet();
  },

  async a_page_that_the_agent_has_open_is_seen({ tab, room }) {
    await tab.open(given.page, "dispatcher", room);
    await tab.say("Look at our page");
    await tab.quiet();
    const opened = card(tab, "browser_open");
    await opened.getByRole("link", { name: `${given.page}/` }).waitFor();
    const shot = card(tab, "browser_screenshot").locator("img.picture");
    await shot.waitFor();
    same(await shot.evaluate((one) => one.decode().then(() => one.naturalWidth > 300)), true, "the picture is there");
    const code = card(tab, "browser_execute");
    same(await code.getByRole("list", { name: "Calls" }).locator("summary code").textContent(), "cdp.send", "what code calls");
    same(await code.getByLabel("Result").textContent(), "1", "result of code");
    await card(tab, "browser_markdown").getByRole("heading", { name: "Opening hours" }).waitFor();
  },

  async pictures_of_code({ tab, another, room }) {
    if (!given.pictures) return "skipped";
    await tab.open(given.page, "dispatcher", room);
    await tab.say("Remind everybody whose order is late");
    await call(tab, 1).getByText("runs", { exact: true }).waitFor();
    await picture(tab, "code-runs");
    await go(room);
    await tab.quiet();
    await call(tab, 2).locator("summary").click();
    await picture(tab, "code");
    await tab.say("Pay the first one back");
    await card(tab, "execute").locator("form.question").waitFor();
    await tab.page.emulateMedia({ colorScheme: "dark" });
    await picture(tab, "code-asks-dark");
    await tab.page.emulateMedia({ colorScheme: "light" });
    const pages = await another();
    await pages.open(given.page, "dispatcher", `${room}-pages`);
    await pages.say("Look at our page");
    await pages.quiet();
    await card(pages, "browser_screenshot").scrollIntoViewIfNeeded();
    await picture(pages, "browser");
  },
};
