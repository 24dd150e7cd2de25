// Somebody whom `authorize` lets into conversations of their own alone opens the page for the first time.
//
//   node closed.mjs '{"page": "http://127.0.0.1:8791", "chromium": "ws://127.0.0.1:9222/…"}'
//
// Writes what was seen on the way, as JSON.

import { chromium } from "playwright-core";
import { given, Tab } from "./tab.mjs";

const browser = await chromium.connect(given.chromium);
const tab = new Tab(await browser.newPage());
const { page } = tab;
page.setDefaultTimeout(20_000);
const field = page.getByRole("textbox", { name: "Conversation", exact: true }); // the log of a conversation has that label, too
const seen = {};

await page.goto(given.page);
await page.getByLabel("Token").fill("t-ada");
await page.getByLabel("Token").press("Enter");
seen.told = await page.getByRole("alert").innerText();
seen.offered = await field.inputValue();
await tab.button("Open").click();
await tab.connected();
seen.entered = new URL(page.url()).searchParams.get("name");
await tab.say("hello");
await tab.shows("demo model");

await page.goto(given.page); // the closed one is not remembered as the last
await tab.connected();
seen.again = new URL(page.url()).searchParams.get("name");

await tab.button("New conversation").first().click();
await field.fill("ada.trip");
await field.press("Enter");
await tab.connected();
seen.typed = new URL(page.url()).searchParams.get("name");

await browser.close();
console.log(JSON.stringify(seen));
