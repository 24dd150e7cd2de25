// Journeys through the page in headless Chromium.
//
//   node journeys.mjs '{"page": "http://127.0.0.1:8791", "chromium": "ws://127.0.0.1:9222/…", ...}'
//
// Writes one JSON line for each journey: {"name", "ok", "seconds", "error", "frames"}.

import { chromium } from "playwright-core";
import { journeys as asking } from "./asking.mjs";
import { journeys as chatting } from "./chatting.mjs";
import { journeys as coding } from "./coding.mjs";
import { journeys as delegating } from "./delegating.mjs";
import { journeys as extending } from "./extending.mjs";
import { journeys as filing } from "./filing.mjs";
import { journeys as finding } from "./finding.mjs";
import { journeys as inspecting } from "./inspecting.mjs";
import { journeys as learning } from "./learning.mjs";
import { journeys as marking } from "./marking.mjs";
import { journeys as messaging } from "./messaging.mjs";
import { journeys as remembering } from "./remembering.mjs";
import { journeys as serving } from "./serving.mjs";
import { journeys as signing } from "./signing.mjs";
import { journeys as stopping } from "./stopping.mjs";
import { given, Tab } from "./tab.mjs";

const journeys = {
  ...asking,
  ...chatting,
  ...coding,
  ...delegating,
  ...extending,
  ...filing,
  ...finding,
  ...inspecting,
  ...learning,
  ...marking,
  ...messaging,
  ...remembering,
  ...serving,
  ...signing,
  ...stopping,
};

async function travel(browser, name) {
  const began = performance.now();
  const contexts = [];
  const tabs = [];
  const another = async (options = {}) => {
    const context = await browser.newContext({
      viewport: { width: 1280, height: 800 },
      permissions: ["geolocation"],
      geolocation: { latitude: 52.52, longitude: 13.405 },
      reducedMotion: "reduce",
      ...options,
    });
    context.setDefaultTimeout(given.timeout ?? 30_000);
    contexts.push(context);
    const tab = new Tab(await context.newPage());
    tabs.push(tab);
    return tab;
  };
  const result = { name, ok: true };
  try {
    const room = `${name.replaceAll("_", "-")}-${process.pid}`;
    if ((await journeys[name]({ tab: await another(), another, room })) === "skipped") result.skipped = true;
    const expected = /WebSocket connection to|ERR_CONNECTION_(REFUSED|RESET)|ERR_SOCKET_NOT_CONNECTED|ERR_EMPTY_RESPONSE/; // while a server is away
    const troubles = tabs.flatMap((tab) => tab.troubles).filter((text) => !expected.test(text));
    if (troubles.length) throw new Error(`on the console: ${troubles.join("\n")}`);
  } catch (error) {
    result.ok = false;
    result.error = String(error.stack ?? error).slice(0, 3000);
    result.shown = await tabs[0]?.page.innerText("body").catch(() => "");
    result.frames = tabs.map((tab) => tab.frames.slice(-60));
  }
  await Promise.all(contexts.map((context) => context.close().catch(() => {})));
  result.seconds = Math.round(performance.now() - began) / 1000;
  console.log(JSON.stringify(result));
}

if (given.list) {
  console.log(JSON.stringify(Object.keys(journeys)));
} else {
  const browser = await chromium.connect(given.chromium);
  const waiting = [...(given.only ?? Object.keys(journeys))];
  const worker = async () => {
    for (let name = waiting.shift(); name; name = waiting.shift()) await travel(browser, name);
  };
  await Promise.all(Array.from({ length: given.workers ?? 4 }, worker));
  await browser.close();
}
