// A browser tab in the words of someone who uses it, and what every journey needs.

import { setTimeout as pause } from "node:timers/promises";

export { pause };
export const given = JSON.parse(process.argv[2]);

export const words = (count, from = 0) => Array.from({ length: count }, (_, i) => `w${i + from}`).join(" ");
export const same = (found, expected, what) => {
  if (found !== expected) throw new Error(`${what}: ${JSON.stringify(found)} is not ${JSON.stringify(expected)}`);
};

export class Tab {
  constructor(page) {
    this.page = page;
    this.frames = [];
    this.troubles = [];
    page.on("pageerror", (error) => this.troubles.push(String(error)));
    page.on("console", (message) => message.type() === "error" && this.troubles.push(message.text()));
    page.on("websocket", (socket) => {
      socket.on("framesent", ({ payload }) => this.frames.push(`> ${String(payload).slice(0, 400)}`));
      socket.on("framereceived", ({ payload }) => this.frames.push(`< ${String(payload).slice(0, 400)}`));
    });
  }

  async open(base, agent, name, more = "") {
    await this.page.goto(`${base}/?agent=${agent}&name=${name}${more}`);
    await this.connected();
  }

  async connected() {
    await this.page.locator('.connection[data-line="open"]').waitFor();
  }

  async reload() {
    await this.page.reload();
    await this.connected();
  }

  async say(text) {
    const field = this.page.getByLabel("Message", { exact: true });
    await field.fill(text);
    await field.press("Enter");
  }

  button(name) {
    return this.page.getByRole("button", { name, exact: true });
  }

  get answers() {
    return this.page.locator('[data-role="assistant"]');
  }

  /** The prose of the newest answer, thoughts left out. */
  async prose() {
    return this.answers.last().evaluate((node) =>
      [...node.querySelectorAll(":scope > .prose")].map((one) => one.textContent.trim()).join(" | "),
    );
  }

  async shows(text) {
    await this.answers.last().getByText(text).last().waitFor();
  }

  /** Nothing runs and nothing is said about it. */
  async quiet() {
    await this.button("Send").waitFor();
    await this.page.locator('.notice[data-status="ready"]').waitFor();
  }

  tool(name, state) {
    return this.page.locator(`[data-tool="${name}"][data-state="${state}"]`);
  }
}

export async function picture(tab, name) {
  if (!given.pictures) return;
  await tab.page.mouse.move(0, 0);
  await pause(250);
  await tab.page.screenshot({ path: `${given.pictures}/page-${name}.png` });
}
