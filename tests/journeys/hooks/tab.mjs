// A tab with the page of the hooks in it.

export class Tab {
  constructor(page, base, room) {
    this.page = page;
    this.base = base;
    this.room = room;
    this.frames = [];
    this.troubles = [];
    this.cut = false;
    page.on("pageerror", (error) => this.troubles.push(String(error)));
    page.on("console", (said) => said.type() === "error" && this.troubles.push(said.text()));
    page.on("websocket", (socket) => {
      socket.on("framesent", ({ payload }) => this.frames.push(`> ${String(payload).slice(0, 400)}`));
      socket.on("framereceived", ({ payload }) => this.frames.push(`< ${String(payload).slice(0, 400)}`));
    });
  }

  async open(more = "") {
    await this.page.addInitScript(() => {
      window.shown = () => {
        const answers = [...document.querySelectorAll('[data-role="assistant"] p')];
        return answers.map((answer) => answer.textContent).join("");
      };
    });
    await this.page.goto(`${this.base}/index.html?room=${this.room}${more}`);
    await this.connected();
  }

  connected = () => this.page.locator('main[data-line="open"]').waitFor();
  reload = async () => {
    await this.page.reload();
    await this.connected();
  };

  /** Put a line between this tab and the server that can be cut. Before `open`. */
  async wire() {
    await this.page.routeWebSocket(/\/agents\//, (socket) => {
      if (this.cut) return socket.close({ code: 1012 });
      const server = socket.connectToServer();
      this.drop = async () => {
        this.cut = true;
        server.close();
        await socket.close({ code: 1012 });
        await this.page.locator('main[data-line="closed"]').waitFor();
      };
    });
  }

  async mend() {
    this.cut = false;
    await this.connected();
  }

  // These run in the page, where `hooks` has both hooks and everything they told.
  use = (fn, value) => this.page.evaluate(fn, value);
  until = (fn, value) => this.page.waitForFunction(fn, value);

  say = (text) => this.use((text) => void hooks.chat.sendMessage({ text }), text);
  answers = () => this.page.locator('[data-role="assistant"]');
  /** Everything the agent said. */
  text = async () => (await this.answers().locator("p").allTextContents()).join("");
  shows = (text) => this.until((text) => shown().includes(text), text);
  /** What the agent said comes to rest as this text, and as no other. */
  async reads(text, what) {
    try {
      await this.until((text) => shown() === text, text);
    } catch {
      throw new Error(`${what}: ${JSON.stringify(await this.text())} is not ${JSON.stringify(text)}`);
    }
  }
  shows_only = (text) => this.until((text) => shown() === text, text);
  tool = (name, state) => this.page.locator(`[data-tool="${name}"][data-state="${state}"]`).waitFor();
  quiet = (status = "ready") => this.page.locator(`main[data-status="${status}"][data-busy="false"]`).waitFor();
  state = async () => JSON.parse((await this.page.locator("#state").textContent()) || "null");
  until_state = (state) =>
    this.until((state) => document.getElementById("state").textContent === state, JSON.stringify(state));
  told = (what) => this.use((what) => hooks.told[what], what);

  /** At no moment was there anything but a beginning of this text. */
  async never_showed_but(text) {
    for (const shown of await this.told("shown")) {
      if (!text.startsWith(shown)) throw new Error(`once showed ${JSON.stringify(shown)}`);
    }
  }

  /** At no moment was anything said twice, in one message or in several: there was a beginning of this text. */
  async showed_once(text) {
    for (const shown of await this.told("shown")) {
      if (!text.startsWith(shown.replaceAll("|", ""))) throw new Error(`once showed ${JSON.stringify(shown)}`);
    }
  }

  /** Answer the question that is open. */
  approve = (approved = true) =>
    this.use((approved) => {
      const parts = hooks.chat.messages.flatMap((message) => message.parts);
      const { approval } = parts.findLast((one) => one.state === "approval-requested");
      return hooks.chat.addToolApprovalResponse({ id: approval.id, approved });
    }, approved);

  /** Answer what a tool asks. */
  reply = (output) =>
    this.use((output) => {
      const parts = hooks.chat.messages.flatMap((message) => message.parts);
      const { toolCallId } = parts.findLast((one) => one.state === "approval-requested");
      hooks.chat.addToolOutput({ toolCallId, toolName: "wonder", output });
    }, output);

  /** What a call gave: {value} or {error}. */
  call = (method, args = [], options) =>
    this.use(
      ([method, args, options]) =>
        hooks.agent.call(method, args, options).then(
          (value) => ({ value }),
          (error) => ({ error: error.message }),
        ),
      [method, args, options],
    );
}
