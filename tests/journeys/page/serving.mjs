// Journeys to the MCP servers of an agent: the inspector's Servers tab.

import { Panel } from "./inspecting.mjs";
import { Server } from "./server.mjs";
import { given, picture, same } from "./tab.mjs";

/** The Servers tab, in the words of someone who uses it. */
export class Servers extends Panel {
  async look() {
    await this.open();
    await this.turnTo("Servers");
  }

  server(name, state) {
    return this.side.locator(`[data-server="${name}"]${state ? `[data-state="${state}"]` : ""}`);
  }

  async add(name, url) {
    const form = this.side.getByRole("form", { name: "Add a server" });
    await form.getByLabel("Name").fill(name);
    await form.getByLabel("Address").fill(url);
    await form.getByRole("button").click();
  }

  get trouble() {
    return this.side.getByRole("form", { name: "Add a server" }).getByRole("alert");
  }

  async remove(name) {
    await this.server(name).locator("summary").first().click();
    await this.tab.button(`Remove ${name}`).click();
    await this.tab.button("Remove").last().click();
  }
}

export const journeys = {
  async a_server_that_is_added_fails_comes_back_and_goes({ tab, another, room }) {
    const library = new Server(given.library);
    const address = `${library.page}/mcp`;
    try {
      await library.start();
      await tab.open(given.page, "desk", room);
      const panel = new Servers(tab);
      await panel.look();
      await panel.side.getByText("This agent has no MCP servers").waitFor();
      await panel.add("library", address);
      const ready = panel.server("library", "ready");
      await ready.waitFor();
      await ready.getByText("of this agent").waitFor();
      await ready.getByText(`${address} · 2 tools · 1 prompt · 1 resource`).waitFor();

      // What it offers, by the names that the model uses
      await ready.locator("summary").first().click();
      await ready.getByText("library_find_book", { exact: true }).click();
      await ready.getByText("Say on which shelf a book is.").waitFor();
      await ready.getByText('"title"').first().waitFor();
      await ready.getByText("recommend", { exact: true }).waitFor();
      await ready.getByText("library://hours").waitFor();
      await tab.say('library_find_book {"title": "Emma"}');
      await tab.shows("Emma is on shelf 4.");
      await tab.quiet();

      // A second tab is told, too, and what happens to the server is seen in both
      const second = await another();
      await second.open(given.page, "desk", room, "&inspect=servers");
      const other = new Servers(second);
      await other.server("library", "ready").waitFor();
      await library.kill();
      await tab.say('library_find_book {"title": "Persuasion"}');
      for (const one of [panel, other]) {
        await one.server("library", "failed").getByText("failed", { exact: true }).waitFor();
        await one.server("library", "failed").locator(".tool-error").waitFor();
      }
      await library.start();
      for (const one of [panel, other]) await one.server("library", "ready").waitFor();
      await tab.quiet();
      await tab.say('library_find_book {"title": "Emma"}');
      await tab.page.waitForFunction(() => document.querySelectorAll('[data-role="assistant"]').length === 3);
      await tab.shows("Emma is on shelf 4.");
      await tab.quiet();

      await other.remove("library");
      for (const one of [panel, other]) await one.side.getByText("This agent has no MCP servers").waitFor();
      await tab.reload();
      await panel.side.getByText("This agent has no MCP servers").waitFor();
    } finally {
      await library.kill();
    }
  },

  async a_server_that_cannot_be_added({ tab, room }) {
    await tab.open(given.page, "desk", room);
    const panel = new Servers(tab);
    await panel.look();
    const refused = async (name, url, words) => {
      await panel.add(name, url);
      await panel.trouble.getByText(words).waitFor();
      same(await panel.side.locator("[data-server]").count(), 0, `servers after ${url}`);
    };
    await refused("", "https://mcp.example/mcp", "Give it a name.");
    await refused("x", "mcp.example", "The address begins with");
    await refused("x", "http://10.0.0.1/mcp", "Blocked URL");
    // One that does not answer is kept, and says why
    await panel.add("nobody", "http://127.0.0.1:1/mcp");
    await panel.trouble.getByText("The server is kept").waitFor();
    await panel.server("nobody", "failed").locator(".tool-error").waitFor();
    await panel.remove("nobody");
    await panel.side.getByText("This agent has no MCP servers").waitFor();
    tab.troubles = tab.troubles.filter((text) => !/status of (400|502)/.test(text)); // the browser's own words for it
  },

  /** What the page makes of servers that wait for a person: the frame is played, the server is not. */
  async a_server_that_waits_for_a_person({ tab, room }) {
    let socket;
    await tab.page.routeWebSocket(/\/agents\//, (route) => {
      socket = route;
      route.connectToServer();
    });
    await tab.open(given.page, "desk", room);
    const panel = new Servers(tab);
    await panel.look();
    const server = { name: "calendar", server_url: "https://calendar.example/mcp", state: "authenticating", error: null };
    const more = { instructions: null, capabilities: null };
    const play = (auth_url) =>
      socket.send(
        JSON.stringify({
          type: "cf_agent_mcp_servers",
          mcp: { servers: { c: { ...server, ...more, auth_url } }, tools: [], prompts: [], resources: [] },
        }),
      );
    play("https://login.example/authorize?state=1");
    await panel.server("calendar").getByText("waits for a person").waitFor();
    const link = panel.server("calendar").getByRole("link", { name: "Authorise at login.example" });
    same(await link.getAttribute("href"), "https://login.example/authorize?state=1", "link");
    same(await link.getAttribute("target"), "_blank", "target");
    same(await link.getAttribute("rel"), "noopener noreferrer", "rel");
    play("javascript:alert(1)");
    await link.waitFor({ state: "detached" });
    same(await panel.server("calendar").getByRole("link").count(), 0, "links that run something");
  },

  async pictures_of_servers({ tab, another, room }) {
    if (!given.pictures) return "skipped";
    const library = new Server(given.shelf);
    try {
      await library.start();
      await tab.page.setViewportSize({ width: 1280, height: 960 });
      await tab.open(given.page, "concierge", room);
      await tab.say("I would like to pay");
      await tab.page.locator("form.question").waitFor();
      const panel = new Servers(tab);
      await panel.look();
      await panel.add("library", `${library.page}/mcp`);
      await panel.server("library", "ready").waitFor();
      await panel.add("weather", "http://127.0.0.1:9/mcp");
      await panel.trouble.waitFor();
      await panel.turnTo("Turns");
      await panel.turnTo("Servers"); // without what was said about adding
      await panel.server("library").locator("summary").first().click();
      await panel.server("library").getByText("library_find_book", { exact: true }).click();
      await picture(tab, "servers");
      await tab.page.emulateMedia({ colorScheme: "dark" });
      await picture(tab, "servers-dark");
      const phone = await another({ viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true });
      await phone.open(given.page, "concierge", room, "&inspect=servers");
      await new Servers(phone).server("library", "ready").locator("summary").first().tap();
      await picture(phone, "phone-servers");
      tab.troubles = tab.troubles.filter((text) => !/status of 502/.test(text));
    } finally {
      await library.kill();
    }
  },

  async a_server_of_the_app({ tab, room }) {
    const server = new Server(given.common);
    try {
      await server.start();
      await tab.open(server.page, "desk", room, "&inspect=servers");
      const panel = new Servers(tab);
      const library = panel.server("library", "ready");
      await library.getByText("of the app").waitFor();
      await library.locator("summary").first().click();
      await library.getByText("library_borrow", { exact: true }).waitFor();
      same(await tab.button("Remove library").count(), 0, "ways to remove it");
      const nameless = await panel.side.evaluate((side) =>
        [...side.querySelectorAll("button, input, a[href]")]
          .filter((node) => !(node.getAttribute("aria-label") || node.labels?.length || node.textContent.trim()))
          .map((node) => node.outerHTML.slice(0, 120)),
      );
      same(nameless.join("\n"), "", "controls without a name");
    } finally {
      await server.kill();
    }
  },
};
