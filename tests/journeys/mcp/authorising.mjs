// Somebody adds a server that wants a person, goes to its authorization server, and comes back.
//
//   node authorising.mjs '{"page": "http://127.0.0.1:8791", "server": "http://…/mcp", "chromium": "ws://…"}'
//
// Writes what was seen on the way, as JSON.

import { chromium } from "playwright-core";
import { Servers } from "./serving.mjs";
import { given, Tab } from "./tab.mjs";

const browser = await chromium.connect(given.chromium);
const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce" });
context.setDefaultTimeout(20_000);
const tab = new Tab(await context.newPage());
const panel = new Servers(tab);
const seen = {};

/** Follow the button to the authorization server, say a word there, and come back to the page. */
async function authorise(word) {
  const opened = context.waitForEvent("page");
  await panel.server("locked", "authenticating").getByRole("link", { name: /^Authorise at / }).click();
  const there = new Tab(await opened);
  await there.page.getByRole("heading", { name: "Somebody wants to add numbers in your name" }).waitFor();
  const host = new URL(there.page.url()).host;
  await there.page.getByRole("link", { name: word }).click();
  await there.connected(); // it is the page again
  const { origin, search } = new URL(there.page.url());
  const words = new URLSearchParams(search).get("error");
  if (origin !== new URL(given.page).origin) throw new Error(`back at ${origin}`);
  await there.page.close();
  return { host, words };
}

// A server that wants a person is kept, and says so
await tab.open(given.page, "clerk", "desk");
await panel.look();
await panel.add("locked", given.server);
const waiting = panel.server("locked", "authenticating");
await waiting.getByText("waits for a person").waitFor();
seen.before = await waiting.locator(".second").innerText();

// They refuse: it says so, and still waits
seen.refused = await authorise("Refuse");
seen.refusal = await waiting.locator(".tool-error").innerText();

// They allow: it is ready, and its tools are there
seen.allowed = await authorise("Allow");
const ready = panel.server("locked", "ready");
await ready.waitFor();
seen.troubles = await ready.locator(".tool-error").count();
await ready.locator("summary").first().click();
await ready.getByText("locked_add", { exact: true }).waitFor();
await tab.say('locked_add {"a": 20, "b": 22}');
await tab.shows("42");
await tab.quiet();

// It is there after a reload, and gone once it is removed
await tab.reload();
await panel.server("locked", "ready").waitFor();
await panel.remove("locked");
await panel.side.getByText("This agent has no MCP servers").waitFor();
await tab.reload();
await panel.side.getByText("This agent has no MCP servers").waitFor();
seen.console = tab.troubles;

await browser.close();
console.log(JSON.stringify(seen));
