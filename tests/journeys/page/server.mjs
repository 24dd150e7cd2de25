// A server of a journey's own: it is started, killed, and comes back with the same database.

import { spawn } from "node:child_process";
import { pause } from "./tab.mjs";

export class Server {
  /** `of`: {"page", "command", "cwd"}, and "probe": an address that answers, by default a file of the page. */
  constructor(of) {
    this.of = of;
    this.page = of.page;
  }

  async start() {
    const [program, ...words] = this.of.command;
    this.process = spawn(program, words, { cwd: this.of.cwd, stdio: "ignore" });
    const probe = this.of.probe ?? `${this.page}/index.html`;
    for (let i = 0; i < 600; i++) {
      if (await fetch(probe).then(() => true, () => false)) return;
      await pause(50);
    }
    await this.kill();
    throw new Error(`${words.join(" ")} did not start`);
  }

  async kill() {
    if (!this.process || this.process.exitCode !== null || this.process.signalCode !== null) return;
    const gone = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGKILL");
    await gone;
  }
}
