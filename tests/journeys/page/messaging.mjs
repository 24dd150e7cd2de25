// Journeys to conversations that came by a messenger: whose they are, and what was shown there.

import { Panel } from "./inspecting.mjs";
import { Server } from "./server.mjs";
import { given, picture, same } from "./tab.mjs";

/** A shop on Telegram, in the words of those who write to it. */
class Shop extends Server {
  async does(deed, about = {}) {
    const answer = await fetch(`${this.page}/telegram/${deed}?${new URLSearchParams(about)}`, { method: "POST" });
    same(answer.status, 200, deed);
  }

  say = (chat, text) => this.does("say", { chat, text });
}

class Deliveries extends Panel {
  async look() {
    await this.open();
    await this.turnTo("Deliveries");
  }

  row(kind, state) {
    return this.side.locator(`[data-delivery="${kind}"]${state ? `[data-state="${state}"]` : ""}`);
  }
}

/** From the list to the chat of somebody. */
async function enter(tab, who) {
  const below = tab.page.locator(".conversation .children");
  await below.locator("summary").waitFor();
  if (!(await below.getByRole("button").first().isVisible())) await below.locator("summary").click();
  await below.getByRole("button", { name: who }).click();
  await tab.page.getByRole("heading", { name: who }).waitFor();
  await tab.connected();
}

/** Ask until the list has it: it is looked at when somebody comes back to the page. */
async function listed(tab, text) {
  const found = tab.page.locator(".conversation .children summary").getByText(text);
  for (let i = 0; i < 100 && !(await found.count()); i++) {
    await tab.page.evaluate(() => dispatchEvent(new Event("focus")));
    await tab.page.waitForTimeout(100);
  }
  await found.waitFor();
}

export const journeys = {
  async a_chat_on_telegram_is_marked_and_its_messages_are_followed({ tab }) {
    const shop = new Shop(given.shop);
    try {
      await shop.start();
      await tab.open(shop.page, "shop", "default");
      await shop.say("Ann", "Where is order 7?");
      await shop.say("Bob", "Where is order 7?");
      await listed(tab, "2 chats below");
      await enter(tab, "Ann");
      await tab.page.locator('.connection .via[data-messenger="telegram"]').getByText("Telegram · Ann").waitFor();
      await tab.page.locator(".children .here .via").getByText("Telegram").waitFor();
      await tab.shows("It should be with you on Friday");

      // Each message is followed as it happens
      const panel = new Deliveries(tab);
      await panel.look();
      await panel.row("answer", "done").waitFor();
      await shop.say("Ann", "Slowly please, where is order 8?");
      const sent = panel.row("answer", "sent");
      await sent.waitFor();
      await sent.locator("summary").click();
      await sent.getByText("It is there, and more of it may follow.").waitFor();
      await sent.locator("dd").first().getByText(/^\d+$/).waitFor(); // the id that Telegram gave it
      await shop.does("go");
      await panel.row("answer", "done").nth(1).waitFor();

      // A question, and who decided it
      await shop.say("Ann", "Refund order 7");
      await panel.row("question", "done").waitFor();
      await shop.does("press", { chat: "Ann", button: "Approve" });
      const question = panel.row("question", "done");
      await question.locator("summary").click();
      await question.getByText("✅ Approved by Ann.").waitFor();
      await tab.shows("40 EUR are on their way back");

      // One that is to wait, and one that nobody will see
      await shop.does("fault", { method: "sendMessage", after: "600" });
      await shop.say("Ann", "Where is order 9?");
      const waits = panel.row("answer", "planned");
      await waits.getByText(/again at \d\d:\d\d:\d\d/).first().waitFor();
      await waits.getByText("Too Many Requests").waitFor();
      await shop.does("block", { chat: "Bob" });
      await shop.say("Bob", "And order 9?");
      await enter(tab, "Bob");
      const failed = panel.row("answer", "failed");
      await failed.getByText("bot was blocked by the user").waitFor();
      await failed.locator("summary").click();
      await failed.getByText("It is not shown, and nobody tries again.").waitFor();

      // It is there after a reload, and no secret is
      await tab.reload();
      await panel.row("answer", "failed").waitFor();
      await tab.page.locator(".connection .via").getByText("Telegram · Bob").waitFor();
      const read = await (await fetch(`${shop.page}/everthink/inspect/shop/default`)).text();
      const text = (await tab.page.content()) + read + tab.frames.join("");
      same(text.includes("journey-token"), false, "the token of the bot");

      // What nobody brought by a messenger is not marked
      await tab.open(shop.page, "shop", "here");
      await tab.say("Where is order 7?");
      await tab.shows("It should be with you on Friday");
      same(await tab.page.locator(".connection .via").count(), 0, "marks of what came by the page");
    } finally {
      await shop.kill();
    }
  },

  async pictures_of_messengers({ tab, another }) {
    if (!given.pictures) return "skipped";
    const shop = new Shop(given.stand);
    try {
      await shop.start();
      await tab.page.setViewportSize({ width: 1280, height: 960 });
      await tab.open(shop.page, "shop", "default");
      await shop.say("Bob", "Are you open on Sunday?");
      await shop.say("Ann", "Where is order 7?");
      await listed(tab, "2 chats below");
      await enter(tab, "Ann");
      const panel = new Deliveries(tab);
      await panel.look();
      await panel.row("answer", "done").waitFor();
      await shop.say("Ann", "Please refund order 7");
      await panel.row("question", "done").waitFor();
      await shop.does("press", { chat: "Ann", button: "Approve" });
      await panel.row("answer", "done").nth(2).waitFor();
      await tab.shows("40 EUR are on their way back");
      await tab.quiet();
      await shop.does("fault", { method: "sendMessage", after: "600" });
      await shop.say("Ann", "And where is order 8?");
      await panel.row("answer", "planned").getByText("Too Many Requests").waitFor();
      await tab.quiet();
      await panel.row("question", "done").locator("summary").click();
      await picture(tab, "deliveries");
      await tab.page.emulateMedia({ colorScheme: "dark" });
      await picture(tab, "deliveries-dark");
      const address = new URL(tab.page.url());
      const phone = await another({ viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true });
      await phone.page.goto(address.href);
      await new Deliveries(phone).row("question", "done").waitFor();
      await picture(phone, "phone-deliveries");
      address.searchParams.delete("inspect");
      await phone.page.goto(address.href);
      await phone.connected();
      await phone.page.locator(".connection .via").waitFor();
      await phone.quiet();
      await picture(phone, "phone-messenger");
    } finally {
      await shop.kill();
    }
  },
};
