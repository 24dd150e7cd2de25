// A Chromium that others connect to, until standard input ends.
//
//   node chromium.mjs /usr/bin/chromium      writes the address

import { chromium } from "playwright-core";

const FLAGS = [
  "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run",
  "--disable-background-networking --disable-component-update --disable-sync",
].flatMap((line) => line.split(" "));

const server = await chromium.launchServer({ executablePath: process.argv[2], args: FLAGS });
console.log(server.wsEndpoint());
for await (const _ of process.stdin);
await server.close();
