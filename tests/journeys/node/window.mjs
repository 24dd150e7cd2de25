// A chat window without a browser: the published `AgentClient`, and the chat's own frames over it.
//
// It trusts nothing: a chunk that comes twice over one connection, that differs from what was said before,
// or that leaves a hole is kept in `troubles`, and what was streamed is compared with what was stored.

import { AgentClient, agentFetch } from "agents/client";
import { readUIMessageStream } from "ai";
import { randomUUID } from "node:crypto";
import WebSocket from "ws";

const PATIENCE = 30_000;

export const textOf = (message) =>
  message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");

export class Window {
  /** With `hesitates` it takes a stream that is offered when it is told to `accept` it, not before. */
  constructor(host, room, { hesitates = false, ...options } = {}) {
    this._hesitates = hesitates;
    this.frames = [];
    this.messages = [];
    this.states = [];
    this.refusals = [];
    this.identities = [];
    this.troubles = [];
    this.turns = new Map();
    this.connection = 0;
    this._acked = new Set();
    this._waiting = new Set();
    const line = (this._line = { cut: false, socket: null });
    this.client = new AgentClient({
      agent: "Stage",
      name: room,
      host,
      minReconnectionDelay: 10,
      maxReconnectionDelay: 100,
      WebSocket: class extends WebSocket {
        constructor(url, protocols) {
          super(line.cut ? "ws://127.0.0.1:1" : url, protocols); // nobody listens there
          line.socket = this;
        }
      },
      onStateUpdate: (state, source) => this.states.push({ state, source }),
      onStateUpdateError: (error) => this.refusals.push(error),
      onIdentity: (name, agent) => this.identities.push(`${agent}/${name}`),
      ...options,
    });
    this.http = (path, init) => agentFetch({ agent: "Stage", name: room, host, path }, init);
    this.client.addEventListener("open", () => {
      this.connection += 1;
      this._acked.clear();
      this._probe = randomUUID();
      this.send({ type: "cf_agent_stream_resume_request", probeId: this._probe });
    });
    this.client.addEventListener("message", ({ data }) => this._take(JSON.parse(data)));
    for (const event of ["open", "close"]) this.client.addEventListener(event, () => this._look());
  }

  // --- sending

  send(frame) {
    this.client.send(JSON.stringify(frame));
  }

  /** Send a user message with everything so far; returns the request's id. */
  say(text, more = {}) {
    const message = { id: randomUUID(), role: "user", parts: [{ type: "text", text }] };
    this.messages = [...this.messages, message];
    return this.request("submit-message", this.messages, more);
  }

  request(trigger, messages, more = {}) {
    const id = randomUUID().slice(0, 8);
    const body = JSON.stringify({ messages, trigger, ...more });
    this.send({ type: "cf_agent_use_chat_request", id, init: { method: "POST", body } });
    return id;
  }

  cancel(id) {
    this.send({ type: "cf_agent_chat_request_cancel", id });
  }

  clear() {
    this.messages = [];
    this.send({ type: "cf_agent_chat_clear" });
  }

  /** Lose the network: no goodbye, and nobody there until `mend`. */
  async drop() {
    this._line.cut = true;
    this._line.socket.terminate();
    await this.until(() => this.client.readyState !== WebSocket.OPEN && !this.client.identified);
  }

  async mend() {
    this._line.cut = false;
    await this.connected();
  }

  /** Known to the server, and told whether anything streams. */
  async connected() {
    await this.until(() => this.client.identified && this.frames.some((frame) => frame.probeId === this._probe));
  }

  close() {
    this.client.close();
  }

  // --- looking

  of(type) {
    return this.frames.filter((frame) => frame.type === type || frame.type === `cf_agent_${type}`);
  }

  turn(id) {
    if (!this.turns.has(id)) this.turns.set(id, { id, chunks: [], seen: new Set(), error: null, done: null });
    return this.turns.get(id);
  }

  /** What a turn has said so far. */
  said(id) {
    return this.turn(id).chunks.map((chunk) => (chunk.type === "text-delta" ? chunk.delta : "")).join("");
  }

  /** All text of the assistant in the stored conversation. */
  get text() {
    return this.messages.filter((message) => message.role === "assistant").map(textOf).join("");
  }

  part(state) {
    return this.messages.flatMap((message) => message.parts).find((part) => part.state === state);
  }

  /** The newest turn that this window did not ask for. */
  other(...own) {
    return [...this.turns.keys()].filter((id) => !own.includes(id)).at(-1);
  }

  // --- waiting

  /** Return what `condition` gives once it is true; it is asked after everything that happens. */
  until(condition) {
    const found = condition();
    if (found) return Promise.resolve(found);
    return new Promise((resolve, reject) => {
      const waiter = { condition, resolve };
      this._waiting.add(waiter);
      waiter.timer = setTimeout(() => {
        this._waiting.delete(waiter);
        reject(new Error(`not seen within ${PATIENCE} ms: ${condition}`));
      }, PATIENCE);
    });
  }

  until_said = (id, text) => this.until(() => this.said(id) === text);
  until_done = (id) => this.until(() => this.turn(id).done);
  until_state = (state) => this.until(() => JSON.stringify(this.client.state) === JSON.stringify(state));

  _look() {
    for (const waiter of this._waiting) {
      const found = waiter.condition();
      if (!found) continue;
      this._waiting.delete(waiter);
      clearTimeout(waiter.timer);
      waiter.resolve(found);
    }
  }

  // --- reading

  _take(frame) {
    this.frames.push(frame);
    switch (frame.type) {
      case "cf_agent_chat_messages":
        this.messages = frame.messages;
        break;
      case "cf_agent_chat_clear":
        this.messages = [];
        break;
      case "cf_agent_message_updated":
        this.messages = this.messages.map((old) => (old.id === frame.message.id ? frame.message : old));
        break;
      case "cf_agent_stream_resuming":
        if (!this._hesitates) this.accept(frame.id);
        break;
      case "cf_agent_use_chat_response":
        this._respond(frame);
    }
    this._look();
  }

  /** A stream may be offered twice, to one who comes and to one who asks; it is taken once. */
  accept(id) {
    if (this._acked.has(id)) return;
    this._acked.add(id);
    this.send({ type: "cf_agent_stream_resume_ack", id });
  }

  _respond(frame) {
    const turn = this.turn(frame.id);
    if (frame.continuation && !turn.base) {
      turn.base = structuredClone(this.messages.findLast((message) => message.role === "assistant"));
    }
    if (frame.error) turn.error = frame.body;
    else if (frame.body && frame.seq !== undefined) this._chunk(turn, frame);
    if (frame.done) turn.done = frame;
  }

  _chunk(turn, { seq, body, replay }) {
    const heard = `${this.connection}/${seq}`;
    if (turn.seen.has(heard) && !turn.done) this.troubles.push(`${turn.id}: chunk ${seq} came twice`);
    turn.seen.add(heard);
    if (seq > turn.chunks.length) this.troubles.push(`${turn.id}: ${seq} came after ${turn.chunks.length - 1}`);
    const before = turn.chunks[seq];
    if (before === undefined) turn.chunks[seq] = JSON.parse(body);
    else if (JSON.stringify(before) !== body) this.troubles.push(`${turn.id}: chunk ${seq} is now ${body}`);
    else if (!replay) this.troubles.push(`${turn.id}: chunk ${seq} was said again`);
  }

  /** The browser's own package can read what was streamed, and it is what was stored. */
  async check() {
    for (const { id, chunks, base, done } of this.turns.values()) {
      const expected = (base ? textOf(base) : "") + this.said(id);
      const options = { message: base, onError: (error) => this.troubles.push(`${id}: ${error}`) };
      let read = { parts: [] };
      for await (const message of readUIMessageStream({ ...options, stream: ReadableStream.from(chunks) })) {
        read = message;
      }
      if (textOf(read) !== expected) this.troubles.push(`${id}: ${expected} was read as ${textOf(read)}`);
      // A continuation has no message of its own yet; others may have been replaced or cleared since.
      const stored = this.messages.find((message) => message.id === chunks[0]?.messageId);
      if (stored && done && textOf(read) !== textOf(stored)) {
        this.troubles.push(`${id}: ${textOf(read)} was stored as ${textOf(stored)}`);
      }
    }
    if (this.troubles.length) throw new Error(this.troubles.join("\n"));
  }
}
