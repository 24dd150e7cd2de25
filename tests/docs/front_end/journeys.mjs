// Walks through the page of docs/howto-front-end.md in headless Chromium.
//
//   node journeys.mjs '{"chromium": "ws://127.0.0.1:9222/…", "pages": {"name": "http://127.0.0.1:5173", …}, "refused": "http://…"}'
//
// Writes one JSON line for each walk: {"name", "ok", "error", "shown", "frames"}.

import { chromium } from "playwright-core";

const given = JSON.parse(process.argv[2]);
const browser = await chromium.connect(given.chromium);

const same = (found, expected, what) => {
  if (found !== expected) throw new Error(`${what}: ${JSON.stringify(found)} is not ${JSON.stringify(expected)}`);
};
const button = (page, name) => page.getByRole("button", { name, exact: true });
const shows = (page, text) => page.locator('[data-role="assistant"]').getByText(text).last().waitFor();
const say = async (page, text) => {
  await page.getByLabel("Message").fill(text);
  await button(page, "Send").click();
};
const quiet = (page) => button(page, "Send").waitFor();

/** Everything that the how-to tells one to try. */
async function tour(page, another) {
  await say(page, "What is the weather in Oslo?");
  await shows(page, "weather: \"It is sunny in Oslo, 22 degrees.\"");
  await quiet(page);

  await say(page, "Which time zone am I in?");
  await shows(page, 'time_zone: "America/Bogota"');
  await quiet(page);
  same(await page.getByText("time_zone:").count(), 1, "answers of the browser");

  await say(page, "Book a hotel room in Rome for 3 nights");
  await button(page, "Yes").waitFor();
  const second = await another();
  await button(second, "Yes").waitFor(); // the question is in every tab
  await button(second, "Yes").click();
  await shows(page, 'book: "A room in Rome for 3 nights is booked."');
  await quiet(page);
  await second.close();

  await say(page, "Book a hotel room in Pisa for 2 nights");
  await button(page, "No").click();
  await shows(page, "book: you said no");
  await quiet(page);

  await say(page, "Count to 2000"); // a minute: longer than a slow machine takes to reload
  await button(page, "Stop").waitFor();
  await page.reload();
  await button(page, "Stop").waitFor(); // it goes on
  await button(page, "Stop").click();
  await quiet(page);

  await button(page, "Clear").click();
  await page.locator("article").first().waitFor({ state: "detached" });
  same(await page.getByRole("alert").count(), 0, "alerts");
}

/** A page from an origin that nobody allowed: it paints, and gets nothing. */
async function turned_away(page) {
  await page.getByLabel("Message").fill("Hello?");
  await button(page, "Send").click();
  await page.waitForEvent("websocket"); // it keeps trying
  await page.waitForEvent("websocket");
  same(await page.locator('[data-role="assistant"]').count(), 0, "answers");
}

async function walk(name, address, steps, quietly) {
  const context = await browser.newContext({ timezoneId: "America/Bogota" });
  const troubles = [];
  const tabs = [];
  const another = async () => {
    const page = await context.newPage();
    const frames = [];
    tabs.push(frames);
    page.on("websocket", (socket) => {
      socket.on("framesent", ({ payload }) => frames.push(`> ${String(payload).slice(0, 400)}`));
      socket.on("framereceived", ({ payload }) => frames.push(`< ${String(payload).slice(0, 400)}`));
    });
    page.on("pageerror", (error) => troubles.push(String(error)));
    page.on("console", (message) => message.type() === "error" && troubles.push(message.text()));
    await page.goto(`${address}/?room=${name}`);
    await page.getByLabel("Message").waitFor();
    return page;
  };
  let page;
  try {
    page = await another();
    await steps(page, another);
    if (quietly) same(troubles.join("\n"), "", "what the console said");
    console.log(JSON.stringify({ name, ok: true }));
  } catch (error) {
    const shown = page ? await page.locator("body").innerText() : "";
    const frames = tabs.map((all) => all.slice(-30));
    console.log(JSON.stringify({ name, ok: false, error: `${error}\n${troubles.join("\n")}`, shown, frames }));
  } finally {
    await context.close();
  }
}

for (const [name, address] of Object.entries(given.pages)) await walk(name, address, tour, true);
await walk("refused", given.refused, turned_away, false);
await browser.close();
