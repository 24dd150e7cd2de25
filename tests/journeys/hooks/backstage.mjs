// The server's side of a room, for journeys in a browser and in Node: see stage.py.

export class Backstage {
  constructor(base, room) {
    this.base = base;
    this.room = room;
  }

  async post(path, body = {}) {
    const asked = { method: "POST", body: JSON.stringify(body), signal: AbortSignal.timeout(30_000) };
    const answer = await fetch(`${this.base}/${path}`, asked);
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer.json();
  }

  /** Let the model go on from its hold, once it is there. */
  release = () => this.post(`agents/stage/${this.room}/release`);
  /** Return once the model has said everything before its next hold. */
  held = () => this.post(`agents/stage/${this.room}/held`);
  /** Let a call that waits answer, once it waits. */
  answer = () => this.post(`agents/stage/${this.room}/answer`);
  /** Return once a call waits. */
  called = () => this.post(`agents/stage/${this.room}/called`);
  /** Return once a turn of this room has ended. */
  ended = () => this.post(`agents/stage/${this.room}/ended`);

  /** How often the model was asked, and what was done that needs a yes. */
  seen = () => this.post(`agents/stage/${this.room}/seen`);
  /** The texts of all that was ever answered to a message, on whichever branch. */
  answers = (to) => this.post(`answers/${this.room}`, { to });

  /** Start a turn in Python. */
  begin = (how, text) => this.post(`begin/${this.room}`, { how, text });
  /** Add an MCP server, and remove it, in Python. */
  add = (url) => this.post(`servers/${this.room}`, { url });
  remove = (id) => this.post(`servers/${this.room}`, { id });

  /** Set the state in Python. */
  state = (state) => this.post(`state/${this.room}`, state);

  /** The conversation as it is stored. */
  async stored() {
    return (await fetch(`${this.base}/agents/stage/${this.room}/get-messages`)).json();
  }
}

/** `w0 w1 w2 `: what the model says. */
export const words = (count, from = 0) => Array.from({ length: count }, (_, i) => `w${i + from} `).join("");

export function same(found, expected, what) {
  const [a, b] = [found, expected].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`${what}: ${a} is not ${b}`);
}

// A journey that fails leaves promises behind that nobody awaits any more. One that holds leaves none.
const strays = [];
process.on("unhandledRejection", (error) => strays.push(error));

/** End the program. `went` says for each journey whether it held. */
export function finish(went) {
  if (strays.length && went.every(Boolean)) throw strays[0];
  process.exit(0);
}
