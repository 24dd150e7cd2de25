// Journeys to tools that ask a person something: forms, addresses, a plain yes or no.

import { given, picture, same } from "./tab.mjs";
import { Server } from "./server.mjs";

/** The form of a tab that waits, in the words of someone who fills it in. */
class Form {
  constructor(tab, tool) {
    this.tab = tab;
    this.card = tab.page.locator(`[data-tool="${tool}"]`).last();
    this.form = this.card.locator("form.question");
  }

  field(name) {
    return this.form.locator(`[data-field="${name}"]`);
  }

  /** The control with this label. */
  control(label) {
    return this.form.getByLabel(label);
  }

  async problem(name) {
    const words = await this.field(name).locator(".tool-error").allTextContents();
    return words.join(" ");
  }

  async press(name) {
    await this.form.locator("button", { hasText: new RegExp(`^${name}$`) }).click();
  }

  /** What is shown of the answer, line by line. */
  async answered() {
    await this.card.locator(".answered").waitFor();
    const rows = await this.card.locator(".answered dl > div, .answered .form > p:not(.quiet)").evaluateAll((all) =>
      all.map((one) => [...one.children].map((cell) => cell.textContent).join(": ") || one.textContent),
    );
    return rows.join("; ");
  }
}

const sent = (tab) => tab.frames.filter((frame) => frame.startsWith("> ") && frame.includes("cf_agent_tool_result"));

/** The agent says what the tool was told, and is done. */
async function told(tab, words = "Told: ") {
  await tab.answers.last().locator(":scope > .prose", { hasText: words }).waitFor();
  await tab.quiet();
}

/** Have a tool called that asks. */
async function asked(tab, room, tool, page = given.page) {
  await tab.open(page, "desk", room);
  await tab.say(tool);
  const form = new Form(tab, tool);
  await form.form.waitFor();
  await tab.quiet();
  return form;
}

/** All that the table needs, rightly. */
async function filled(form) {
  await form.control("Which day?").fill("2026-12-24");
  await form.control("On the terrace").check();
  await form.control("E-mail").fill("ada@example.com");
}

const TOLD = 'Told: table accept {"guests":2,"day":"2026-12-24","where":"out","email":"ada@example.com","remind":true}';
const ANSWERED =
  "How many of you?: 2; Which day?: 2026-12-24; Where: On the terrace; E-mail: ada@example.com; Remind me a day before: Yes";

export const journeys = {
  async a_form_filled_in_wrongly_and_then_rightly({ tab, another, room }) {
    const form = await asked(tab, room, "book_table");
    await tab.page.getByRole("status").getByText("Osteria asks you something.").waitFor();
    await form.form.getByText("When do you come, and who is with you?").waitFor();
    same(await form.control("How many of you?").inputValue(), "2", "default");
    same(await form.control("Remind me").isChecked(), true, "ticked at first");
    const second = await another();
    await second.open(given.page, "desk", room);
    const watching = new Form(second, "book_table");
    await watching.form.waitFor();

    // Nothing is sent before it is right, and what is wrong stands beside its field
    await form.press("Send");
    same(await form.problem("day"), "Please fill this in.", "the day");
    same(await form.problem("where"), "Please choose one.", "the place");
    same(await form.problem("email"), "Please fill this in.", "the address");
    same(await form.problem("guests"), "", "what is right");
    await form.form.getByText("3 fields are not right yet. Nothing was sent.").waitFor();
    const focused = await tab.page.evaluate(() => document.activeElement.closest("[data-field]").dataset.field);
    same(focused, "day", "focus");
    const wrong = async (label, field, values) => {
      for (const [value, words] of Object.entries(values)) {
        await form.control(label).fill(value);
        same(await form.problem(field), words, value);
        same(await form.control(label).getAttribute("aria-invalid"), String(words !== ""), `mark of ${value}`);
      }
    };
    const whole = "This is not a whole number.";
    await wrong("How many of you?", "guests", {
      two: "This is not a number.",
      "2,5": "This is not a number.",
      "2.5": whole,
      1e400: "This is not a number.",
      0: "It is at least 1.",
      13: "It is at most 12.",
      " 2 ": "",
    });
    await wrong("E-mail", "email", { ada: "This is no e-mail address.", "ada@": "This is no e-mail address." });
    for (const diet of ["Vegan", "Nuts", "Gluten"]) await form.control(diet).check();
    same(await form.problem("diets"), "Please choose at most 2.", "too many");
    for (const diet of ["Vegan", "Nuts", "Gluten"]) await form.control(diet).uncheck();
    await form.press("Send");
    same(sent(tab).length, 0, "answers that were sent");

    await filled(form);
    await form.press("Send");
    for (const [one, seen] of [[tab, form], [second, watching]]) {
      await one.tool("book_table", "output-available").waitFor();
      await told(one);
      same(await one.prose(), TOLD, "what the tool was told");
      same(await seen.answered(), ANSWERED, "what is shown of the answer");
      same(await one.page.locator("form.question").count(), 0, "open forms");
      same(await one.page.getByRole("alert").count(), 0, "alerts");
    }
    same(sent(tab).length, 1, "answers that were sent");
    await tab.reload();
    same(await form.answered(), ANSWERED, "after a reload");
    same(await tab.answers.count(), 1, "answers");
  },

  async a_form_declined({ tab, room }) {
    const form = await asked(tab, room, "book_table");
    await form.control("E-mail").fill("not sent to anybody");
    await form.press("Decline");
    await told(tab);
    same(await tab.prose(), "Told: table decline {}", "what the tool was told");
    same(await form.answered(), "Declined.", "what is shown");
    await tab.reload();
    same(await form.answered(), "Declined.", "after a reload");
    await tab.say("book_table");
    const again = new Form(tab, "book_table");
    await again.press("Cancel");
    await told(tab, "Told: table cancel");
    same(await tab.prose(), "Told: table cancel {}", "what the tool was told then");
    same(await again.answered(), "Cancelled, without an answer.", "what is shown then");
  },

  async a_form_answered_in_a_second_tab({ tab, another, room }) {
    const form = await asked(tab, room, "book_table");
    await form.control("E-mail").fill("half written");
    const second = await another();
    await second.open(given.page, "desk", room);
    const other = new Form(second, "book_table");
    await filled(other);
    same(await form.control("E-mail").inputValue(), "half written", "what the first has written");
    await other.press("Send");
    for (const [one, seen] of [[tab, form], [second, other]]) {
      await told(one);
      same(await one.prose(), TOLD, "what the tool was told");
      same(await seen.answered(), ANSWERED, "what is shown of the answer");
      same(await one.answers.count(), 1, "answers");
    }
    same(sent(tab).length, 0, "answers of the one that watched");
  },

  async a_form_that_waits_over_a_reload({ tab, room }) {
    const before = await asked(tab, room, "book_table");
    await before.control("E-mail").fill("ada@example.com");
    await tab.reload();
    const form = new Form(tab, "book_table");
    await form.form.waitFor();
    await tab.page.getByRole("status").getByText("Osteria asks you something.").waitFor();
    await filled(form);
    await form.press("Send");
    await told(tab);
    same(await tab.prose(), TOLD, "what the tool was told");
  },

  async a_form_sent_without_a_line({ tab, room }) {
    let drop = () => {};
    let refuse = false;
    await tab.page.routeWebSocket(/\/agents\//, (socket) => {
      if (refuse) return socket.close({ code: 1012 });
      const server = socket.connectToServer();
      drop = () => {
        server.close();
        return socket.close({ code: 1012 });
      };
    });
    const form = await asked(tab, room, "book_table");
    await filled(form);
    refuse = true;
    await drop();
    await tab.page.getByRole("status").getByText("Reconnecting").waitFor();
    same(await form.control("E-mail").inputValue(), "ada@example.com", "what was written");
    await form.press("Send");
    await form.form.getByText("Sending your answer…").waitFor();
    refuse = false;
    await tab.connected();
    await told(tab);
    same(await tab.prose(), TOLD, "what the tool was told");
    same(await form.answered(), ANSWERED, "what is shown of the answer");
  },

  async an_answer_that_the_server_does_not_take({ tab, room }) {
    const form = await asked(tab, room, "describe");
    await form.control("First name").fill("Ada");
    await form.control("Size").selectOption("3");
    await form.control("More").fill('{"number": "x"}');
    await form.press("Send");
    await form.form.getByRole("alert").getByText("was not taken").waitFor();
    same(await form.control("First name").inputValue(), "Ada", "what was written is kept");
    await form.control("More").fill('{"number": 7}');
    await form.press("Send");
    await told(tab);
    same(await tab.prose(), 'Told: place accept {"firstName":"Ada","nick":null,"size":3,"more":{"number":7}}', "told");
  },

  async rarer_fields({ tab, room }) {
    const form = await asked(tab, room, "describe");
    const wrong = {
      Site: ["example.com", "This is no web address: it begins with https://, for example."],
      "First name": ["A", "It has at least 2 characters; this has 1."],
      Ratio: ["-2", "It is at least -1.5."],
      More: ["{", "This is no JSON."],
    };
    for (const [label, [value]] of Object.entries(wrong)) await form.control(label).fill(value);
    await form.press("Send");
    const problems = await form.form.locator(".field .tool-error").allTextContents();
    const expected = [wrong.Site[1], wrong["First name"][1], wrong.Ratio[1], "Please choose one.", wrong.More[1]];
    same(problems.join(" | "), expected.join(" | "), "problems");
    await form.control("Site").fill("https://example.com/a");
    await form.field("at").locator("input").fill("2026-12-24T18:30");
    await form.control("First name").fill("Zoë 🎈");
    await form.control("Ratio").fill("-1.25");
    await form.control("Nickname").fill("Z");
    await form.control("Size").selectOption("5");
    await form.control("More").fill("");
    await form.press("Send");
    await told(tab);
    const moment = await tab.page.evaluate(() => new Date("2026-12-24T18:30").toISOString());
    const content = { site: "https://example.com/a", at: moment, firstName: "Zoë 🎈", ratio: -1.25, nick: "Z", size: 5 };
    const shown = (await tab.prose()).replace(/^Told: place accept /, "");
    same(JSON.stringify(JSON.parse(shown)), JSON.stringify(content), "what the tool was told");
  },

  async an_address_to_go_to({ tab, room }) {
    const asksFor = [];
    tab.page.context().on("request", (request) => asksFor.push(request.url()));
    const form = await asked(tab, room, "pay");
    const link = form.form.getByRole("link", { name: "Open pay.example" });
    same(await link.getAttribute("href"), "https://pay.example/checkout/4711?for=desk", "link");
    same(await link.getAttribute("target"), "_blank", "target");
    same(await link.getAttribute("rel"), "noopener noreferrer", "rel");
    await form.form.getByText("https://pay.example/checkout/4711?for=desk", { exact: true }).waitFor();
    await form.press("I have done it");
    await told(tab);
    same(await tab.prose(), "Told: pay accept {}", "what the tool was told");
    same(await form.answered(), "Done, at pay.example.", "what is shown");
    same(asksFor.filter((url) => url.includes("pay.example")).join(), "", "requests to it");
    // What is none of the web's is no link.
    await tab.say("lure");
    const lure = new Form(tab, "lure");
    await lure.form.waitFor();
    same(await lure.form.getByRole("link").count(), 0, "links");
    await lure.press("Decline");
    await told(tab, "Told: go decline");
  },

  async several_forms_at_once({ tab, room }) {
    const form = await asked(tab, room, "plan");
    const part = (name) => form.form.locator(`[data-form="${name}"]`);
    await form.press("Send");
    same(await form.form.locator(".field .tool-error").allTextContents().then((all) => all.join(" ")), "Please fill this in. Please choose one. Please choose one.", "problems");
    await part("who").getByRole("textbox", { name: "Name" }).fill("Ada");
    await part("pay").getByLabel("Decline").check();
    await part("sure").getByLabel("Yes").check();
    await form.press("Send");
    await told(tab);
    same(await tab.prose(), 'Told: who accept {"name":"Ada"}; pay decline {}; sure accept {}', "what the tool was told");
    same(await form.answered(), "Name: Ada; Declined.; Yes.", "what is shown");
    await tab.say("plan");
    const again = new Form(tab, "plan");
    await again.form.waitFor();
    await tab.quiet();
    await again.press("Decline all");
    await told(tab, "Told: who decline {}; pay decline {}; sure decline {}");
  },

  async a_tool_that_asks_twice({ tab, another, room }) {
    const form = await asked(tab, room, "twice");
    const second = await another();
    await second.open(given.page, "desk", room);
    await form.control("Name").fill("Ada");
    await form.control("Name").press("Enter");
    for (const one of [tab, second]) await one.page.getByText("Is Ada right?").waitFor();
    for (const one of [tab, second]) await one.quiet();
    await new Form(second, "twice").press("Yes");
    for (const one of [tab, second]) {
      await told(one);
      same(await one.prose(), "Told: Ada, sure accept {}", "what the tool was told");
      same(await new Form(one, "twice").answered(), "Yes.", "what is shown");
    }
  },

  async a_question_in_the_middle_of_a_call({ tab, another, room }) {
    await tab.open(given.page, "desk", room);
    const second = await another();
    await second.open(given.page, "desk", room);
    await tab.say("hurry");
    const form = new Form(tab, "hurry");
    await form.form.getByText("It waits 5 minutes.").waitFor();
    await new Form(second, "hurry").control("Name").fill("Ada");
    await new Form(second, "hurry").press("Send");
    for (const one of [tab, second]) {
      await told(one);
      same(await one.prose(), 'Told: who accept {"name":"Ada"}', "what the tool was told");
      same(await new Form(one, "hurry").answered(), "Name: Ada", "what is shown");
      same(await one.page.getByRole("alert").count(), 0, "alerts");
    }
    await tab.say("hurry");
    await tab.page.waitForFunction(() => document.querySelectorAll("form.question").length === 1);
    await form.control("Name").fill("Bob");
    await form.press("Send");
    await told(tab, "Bob");
    same(await tab.prose(), 'Told: who accept {"name":"Bob"}', "what the tool was told then");
  },

  /** The server dies while a form waits, half filled in, and comes back. */
  async a_form_that_outlives_the_server({ tab, room }) {
    const server = new Server(given.shared);
    try {
      await server.start();
      const form = await asked(tab, room, "book_table", server.page);
      await filled(form);
      await server.kill();
      await tab.page.getByRole("status").getByText("Reconnecting").waitFor();
      await server.start();
      await tab.connected();
      same(await form.control("E-mail").inputValue(), "ada@example.com", "what was written");
      await form.press("Send");
      await told(tab);
      same(await tab.prose(), TOLD, "what the tool was told");
      same(await tab.page.getByRole("alert").count(), 0, "alerts");

      // The same for a question that an MCP server asked, whose process is gone as well
      await tab.say('library_borrow {"title": "Emma"}');
      const lent = new Form(tab, "library_borrow");
      await lent.form.getByText("library asks").waitFor();
      await server.kill();
      await server.start();
      await tab.connected();
      await lent.control("For how many days?").fill("31");
      await lent.press("Send");
      same(await lent.problem("days"), "It is at most 30.", "problem");
      await lent.control("For how many days?").fill("14");
      await lent.press("Send");
      await told(tab, "Emma: accept");
      same(await lent.answered(), "For how many days?: 14", "what is shown of the answer");
    } finally {
      await server.kill();
    }
  },

  async pictures_of_forms({ tab, another, room }) {
    if (!given.pictures) return "skipped";
    await tab.page.setViewportSize({ width: 1280, height: 960 });
    await tab.open(given.page, "concierge", room);
    await tab.say("A table at the Osteria, please");
    const form = new Form(tab, "book_table");
    await filled(form);
    await form.control("E-mail").fill("ada@example");
    await form.control("How many of you?").fill("14");
    await form.press("Send");
    await form.form.getByText("One field is not right yet").waitFor();
    await tab.page.evaluate(() => document.activeElement.blur());
    await picture(tab, "form");
    await tab.page.emulateMedia({ colorScheme: "dark" });
    await picture(tab, "form-dark");
    const phone = await another({ viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true });
    await phone.open(given.page, "concierge", room);
    const held = new Form(phone, "book_table");
    await held.form.waitFor();
    await phone.page.locator(".transcript").evaluate((node) => (node.scrollTop = 56));
    await picture(phone, "phone-form");
  },

  async a_form_by_keyboard_and_on_a_phone({ tab, another, room }) {
    const form = await asked(tab, room, "book_table");
    await form.control("How many of you?").focus();
    const keys = tab.page.keyboard;
    await keys.press("Control+A");
    await keys.type("4");
    await keys.press("Tab");
    await keys.type("12242026");
    await form.control("Inside").focus();
    await keys.press("Space");
    await keys.press("ArrowDown");
    await keys.press("Tab"); // the occasion
    await keys.type("A birthday");
    await keys.press("Tab"); // the first diet
    await keys.press("Space");
    await form.control("E-mail").focus();
    await keys.type("ada@example.com");
    await keys.press("Tab");
    await keys.press("Space"); // no reminder
    const nameless = await form.form.evaluate((form) =>
      [...form.querySelectorAll("button, input, select, textarea")]
        .filter((node) => !(node.getAttribute("aria-label") || node.labels?.length || node.textContent.trim()))
        .map((node) => node.outerHTML.slice(0, 120)),
    );
    same(nameless.join("\n"), "", "controls without a name");
    const phone = await another({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
    await phone.open(given.page, "desk", room);
    const held = new Form(phone, "book_table");
    await held.form.waitFor();
    same(await phone.page.evaluate(() => document.documentElement.scrollWidth), 390, "width on a phone");
    const low = await held.form.evaluate((form) =>
      [...form.querySelectorAll("label:has(input[type=radio], input[type=checkbox]), select, input:not([type=radio], [type=checkbox])")]
        .filter((node) => node.getBoundingClientRect().height < 44)
        .map((node) => node.outerHTML.slice(0, 120)),
    );
    same(low.join("\n"), "", "what is too small for a finger");
    await form.control("E-mail").press("Enter");
    await told(tab);
    const content = { guests: 4, day: "2026-12-24", where: "out", occasion: "birthday", diets: ["vegan"] };
    same(await tab.prose(), `Told: table accept ${JSON.stringify({ ...content, email: "ada@example.com", remind: false })}`, "told");
  },
};
