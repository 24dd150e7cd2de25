// Tabs that only watch: one asks or answers, the others are shown the same, once, at every moment.

import { same, words } from "./backstage.mjs";

/** Two tabs of one room, and what both must show. */
async function two({ tab, another }, first = "", second = "") {
  const other = await another();
  await tab.open(first);
  await other.open(second);
  return [tab, other];
}

/** Every tab shows this text and nothing else, has never shown more, and shows it after a reload. */
async function show_once(tabs, text, status = "ready") {
  for (const one of tabs) {
    await one.shows_only(text);
    await one.quiet(status);
    await one.showed_once(text);
    // The hook takes a snapshot in two steps, message by message: what counts is where it comes to rest.
    await one.shows_only(text);
  }
  for (const one of tabs) {
    await one.reload();
    await one.shows_only(text);
    await one.showed_once(text);
  }
}

/** The question is on every screen; one of them answers. */
async function asked(tabs) {
  for (const one of tabs) {
    await one.tool("danger", "approval-requested");
    await one.quiet();
  }
}

/** What is said before the hold is on every screen, once. */
async function halfway(tabs, text) {
  for (const one of tabs) {
    await one.shows_only(text);
    await one.showed_once(text);
  }
}

const approval = (who, approved) => async (given) => {
  const tabs = await two(given);
  await tabs[0].say("2 danger 2 hold 2");
  await asked(tabs);
  await tabs[who].approve(approved);
  await halfway(tabs, words(4));
  await given.stage.release();
  await show_once(tabs, words(6));
};

const ADA = { action: "accept", content: { name: "Ada" } };

/** A tool asks; who answers goes on in an answer of its own, the other one watches. */
const question = (who, times = 1) => async (given) => {
  const tabs = await two(given);
  await tabs[0].say(`2 ${times === 1 ? "wonder" : "wonders"} 2 hold 2`);
  for (let i = 0; i < times; i++) {
    const asks = (text) => hooks.chat.messages.some((message) =>
      message.parts.some((part) => part.state === "approval-requested" && part.approval.descriptor.forms.who.message === text));
    for (const one of tabs) {
      await one.until(asks, `Who is number ${i + 1}?`);
      await one.quiet();
    }
    // Who answers the next question within a second is taken to have meant the one before: these read it first.
    if (i > 0) await tabs[0].until((at) => Date.now() >= at, Date.now() + 1_200);
    await tabs[(who + i) % 2].reply(ADA);
  }
  await halfway(tabs, words(4));
  await given.stage.release();
  await show_once(tabs, words(6));
};

const browser_tool = (first, second) => async (given) => {
  const tabs = await two(given, first, second);
  await tabs[0].say("2 getLocation 2 hold 2");
  await halfway(tabs, words(4));
  await given.stage.release();
  await show_once(tabs, words(6));
};

const lost_line = (whose) => async (given) => {
  const tabs = [given.tab, await given.another()];
  await tabs[whose].wire();
  for (const one of tabs) await one.open();
  await tabs[0].say("2 danger 2 hold 2 hold 2");
  await asked(tabs);
  await tabs[0].approve();
  await halfway(tabs, words(4));
  await tabs[whose].drop();
  await given.stage.release();
  await given.stage.held();
  await tabs[whose].mend();
  await halfway(tabs, words(6));
  await given.stage.release();
  await show_once(tabs, words(8));
};

/** A second question is asked while the continuation of the first one streams. */
const asked_more = (who) => async (given) => {
  const tabs = await two(given);
  await tabs[0].say("2 danger 2 hold 2");
  await asked(tabs);
  await tabs[0].approve();
  await halfway(tabs, words(4));
  await tabs[who].say("1");
  for (const one of tabs) await one.until(() => hooks.chat.messages.filter((m) => m.role === "user").length === 2);
  tabs.push(await given.another());
  await tabs[2].open();
  await halfway(tabs, words(4));
  await given.stage.release();
  await show_once(tabs, words(6) + words(1));
};

export const watching = {
  watching_an_approval_by_who_asked: approval(0, true),
  watching_an_approval_by_the_other: approval(1, true),
  watching_a_denial_by_who_asked: approval(0, false),
  watching_a_denial_by_the_other: approval(1, false),
  watching_a_question_by_who_asked: question(0),
  watching_a_question_by_the_other: question(1),
  watching_one_question_after_another: question(0, 2),
  watching_a_browser_tool: browser_tool("", "&bare=1"),
  watching_a_browser_tool_of_the_other: browser_tool("&bare=1", ""),
  watching_a_browser_tool_of_both: browser_tool("", ""),

  async watching_a_tool_after_an_approval(given) {
    const tabs = await two(given);
    await tabs[0].say("1 danger 1 echo 1 hold 1");
    await asked(tabs);
    await tabs[0].approve();
    await halfway(tabs, words(3));
    await given.stage.release();
    await show_once(tabs, words(4));
  },

  async watching_one_approval_after_another(given) {
    const tabs = await two(given);
    await tabs[0].say("1 danger 1 danger 1 hold 1");
    await asked(tabs);
    await tabs[0].approve();
    for (const one of tabs) await one.shows_only(words(2));
    await asked(tabs);
    await tabs[1].approve();
    await halfway(tabs, words(3));
    await given.stage.release();
    await show_once(tabs, words(4));
  },

  async watching_from_the_middle(given) {
    const tabs = await two(given);
    await tabs[0].say("2 danger 2 hold 2 hold 2");
    await asked(tabs);
    await tabs[0].approve();
    await halfway(tabs, words(4));
    tabs.push(await given.another());
    await tabs[2].open();
    await tabs[1].reload();
    await halfway(tabs, words(4));
    await given.stage.release();
    await halfway(tabs, words(6));
    await given.stage.release();
    await show_once(tabs, words(8));
  },

  watching_with_a_lost_line: lost_line(1),
  approving_with_a_lost_line: lost_line(0),

  async watching_what_is_stopped(given) {
    const tabs = await two(given);
    await tabs[0].say("2 danger 2 hold 2");
    await asked(tabs);
    await tabs[0].approve();
    await halfway(tabs, words(4));
    await given.stage.held();
    await tabs[0].use(() => void hooks.chat.stop());
    await show_once(tabs, words(4));
  },

  async watching_what_fails(given) {
    const tabs = await two(given);
    await tabs[0].say("2 danger 2 hold fail");
    await asked(tabs);
    await tabs[0].approve();
    await halfway(tabs, words(4));
    await given.stage.release();
    for (const one of tabs) await one.until(() => hooks.told.ends.length === 2);
    for (const one of tabs) await one.shows_only(words(4));
    for (const one of tabs) {
      await one.showed_once(words(4));
      await one.reload();
      await one.quiet("error");
      same(await one.page.locator("#error").textContent(), "the lights went out", "error");
      await one.shows_only(words(4));
      await one.showed_once(words(4));
    }
  },

  /** The yes comes while another tool of the same step still runs. */
  async watching_an_early_approval(given) {
    const tabs = await two(given);
    await tabs[0].say("2 pair 2 hold 2");
    for (const one of tabs) await one.tool("danger", "approval-requested");
    await given.stage.called();
    await tabs[0].approve();
    for (const one of tabs) await one.tool("danger", "approval-responded");
    await given.stage.answer();
    await halfway(tabs, words(4));
    await given.stage.release();
    await show_once(tabs, words(6));
  },

  watching_while_somebody_asks_more: asked_more(0),
  watching_while_the_other_asks_more: asked_more(1),

  /** The answer begins anew in the middle: the conversation was too long for the model. */
  async too_long_and_watched(given) {
    const tabs = await two(given);
    await tabs[0].say("8");
    await halfway(tabs, words(8));
    for (const one of tabs) await one.quiet();
    await tabs[0].say("3 hold full 2 hold 1");
    await halfway(tabs, words(8) + words(3));
    await given.stage.release();
    await tabs[1].shows_only(`In short. ${words(3)}`);
    await given.stage.release();
    await tabs[1].shows_only(`In short. ${words(5)}`);
    await given.stage.release();
    for (const one of tabs) await one.shows_only(`In short. ${words(6)}`);
  },
};
