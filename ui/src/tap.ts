/** What went over the socket, as it happened. The inspector and the tool cards read it. */

import { useSyncExternalStore } from "react";

export type Chunk = { type: string; [key: string]: unknown };

export type Frame = {
  n: number;
  at: number;
  way: "in" | "out" | "socket";
  type: string;
  hint: string;
  text: string;
  size: number;
};

export type TurnChunk = { seq: number | null; at: number; replay: boolean; chunk: Chunk };

export type Turn = {
  id: string;
  startedAt: number;
  endedAt: number | null;
  outcome: string | null;
  error: string | null;
  continuation: boolean;
  chunks: TurnChunk[];
};

export type Line = "connecting" | "open" | "closed";

/** How long the conversation is, and whether it is being summarised. */
export type SessionStatus = { phase: "idle" | "compacting"; tokenEstimate: number; tokenThreshold: number | null };

/** What is looked at in the part of a call. */
type CallPart = {
  toolCallId?: string;
  state?: string;
  approval?: { id?: string; descriptor?: { answers?: unknown } };
};

type RunEvent = { kind: string; runId: string; body?: string };

/** The close code of a line whose time is over: `Granted(until=…)`. */
const EXPIRED = 4401;
const FRAMES = 1000;
const TURNS = 20;
const CHUNKS = 5000;
const KEPT_TEXT = 20_000;
/** For so many milliseconds the end of a stopped answer is waited for. */
const STOPPED_WITHIN = 10_000;

export class Tap {
  frames: Frame[] = [];
  turns: Turn[] = [];
  /** Seconds from a tool's input to its result, when this tab saw both. */
  durations = new Map<string, number>();
  line: Line = "connecting";
  lost = false;
  /** Whether the server does not know any more who this is: coming back needs another sign-in. */
  signedOut = false;
  /** How often we were told the whole conversation: after what another tab, or the server, did to it. */
  told = 0;
  session: SessionStatus | null = null;
  /** Why the conversation could not be summarised, until something else is said about it. */
  sessionTrouble: string | null = null;

  /** How often the server has shown of a call that it waits for a person, by call. */
  asking = new Map<string, number>();
  /** What was answered to the questions of tools, by approval: the hook of a tab that is answered meanwhile misses it. */
  answers = new Map<string, unknown>();

  /** Which question a call asks now, by call: an answer says so, and is never taken for one to the next. */
  private questions = new Map<string, string>();

  /** How often a child began or came to rest in a run: then it may wait for a person, or does not any more. */
  rested = 0;
  /** The runs of which this page was only told later that they were over. */
  past = new Set<string>();

  /** Whether the last message never arrived: the line broke under it, as it does under one that is too long. */
  unheard = false;

  /**
   * The request that was stopped here, until the server has told its end. It tells the conversation with it, and
   * the hook then shows that one: what is said before would vanish from the page.
   */
  stopping: string | null = null;
  private patience: ReturnType<typeof setTimeout> | undefined;

  /** The last request, until the server says something about it. `cut`: the line it was sent by is gone. */
  private asked: { request: string; message: string; cut: boolean } | null = null;
  private starts = new Map<string, number>();
  private count = 0;
  private version = 0;
  private listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | null = null;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  snapshot = (): number => this.version;

  get running(): Turn | undefined {
    return this.turns.findLast((turn) => turn.endedAt === null);
  }

  clear(): void {
    this.frames = [];
    this.changed();
  }

  socket(line: Line, hint = "", code = 0): void {
    if (line === "closed" && code === EXPIRED) this.signedOut = true;
    else if (line === "closed" && this.line === "connecting") void this.whoAmI();
    if (line === "closed" && this.line === "open") this.lost = true;
    if (line === "open") this.lost = this.signedOut = false;
    if (line === "closed") this.session = null; // what it was doing is told anew, if it still does
    if (line === "closed" && this.asked) this.asked.cut = true;
    if (line === "closed") this.stopped(); // a new line begins with the conversation as it is
    this.line = line;
    this.add("socket", line, hint, "");
  }

  sent(text: string): void {
    const frame = parse(text);
    if (!frame) return this.add("out", "(not JSON)", "", text);
    if (frame.type === "cf_agent_use_chat_request") this.asks(frame);
    if (frame.type === "cf_agent_chat_request_cancel") this.stops(String(frame.id));
    this.add("out", name(frame), hintOf(frame), text);
    if (frame.type === "cf_agent_tool_result" || frame.type === "cf_agent_tool_approval") {
      const id = String(frame.toolCallId);
      // What was answered to the question of a tool is not its result: it goes on with it.
      const goesOn = frame.type === "cf_agent_tool_approval" || this.asking.has(id);
      if (goesOn) this.starts.set(id, performance.now());
      else this.settled(id);
    }
  }

  received(text: string): void {
    const frame = parse(text);
    if (!frame) return this.add("in", "(not JSON)", "", text);
    if (frame.type === "cf_agent_use_chat_response") this.response(frame);
    if (frame.type === "agent-tool-event") this.happened(frame.event as RunEvent, frame.replay === true);
    if (frame.type === "cf_agent_message_updated") this.updated(frame.message);
    if (frame.type === "cf_agent_chat_clear") this.turns = [];
    if (frame.type === "cf_agent_chat_messages") {
      this.told++;
      for (const message of Array.isArray(frame.messages) ? frame.messages : []) this.updated(message);
    }
    if (frame.type === "cf_agent_chat_messages" && frame.connect === true) this.greeted(frame.messages as []);
    if (frame.type === "cf_agent_session") this.status(frame as unknown as SessionStatus);
    if (frame.type === "cf_agent_session_error") this.sessionTrouble = String(frame.error);
    this.add("in", name(frame), hintOf(frame), text);
  }

  /** A socket is not told why it is refused. The page itself is: it is shown to those who are let in. */
  private async whoAmI(): Promise<void> {
    try {
      const { status } = await fetch("/", { method: "HEAD", cache: "no-store" });
      if (this.line === "open" || this.signedOut === (status === 401)) return;
      this.signedOut = status === 401;
      this.changed();
    } catch {
      // nobody answers at all: the line is lost, and that is said already
    }
  }

  private asks(frame: Record<string, unknown>): void {
    const body = parse(String((frame.init as { body?: unknown } | undefined)?.body ?? ""));
    const last = (body?.messages as { id?: unknown }[] | undefined)?.at(-1);
    this.asked = { request: String(frame.id), message: String(last?.id), cut: false };
    this.unheard = false;
  }

  private stops(request: string): void {
    if (this.turns.some((turn) => turn.id === request && turn.endedAt !== null)) return;
    this.stopped();
    this.stopping = request;
    this.patience = setTimeout(() => this.stopped(), STOPPED_WITHIN);
  }

  private stopped(): void {
    clearTimeout(this.patience);
    this.stopping = null;
    this.changed();
  }

  /** A new line begins with the whole conversation, unless an answer streams: then what was asked was heard. */
  private greeted(messages: { id?: unknown }[]): void {
    if (!this.asked?.cut) return;
    const { message } = this.asked;
    this.unheard = !messages.some(({ id }) => id === message);
    this.asked = null;
  }

  private status(frame: SessionStatus): void {
    if (frame.phase === "compacting") this.sessionTrouble = null;
    this.session = frame;
  }

  private response(frame: Record<string, unknown>): void {
    if (this.asked?.request === frame.id) this.asked = null;
    const turn = this.turn(String(frame.id), frame.continuation === true);
    if (frame.error === true) turn.error = String(frame.body ?? "");
    else if (typeof frame.body === "string" && frame.body !== "") this.chunk(turn, frame, frame.body);
    if (frame.done === true) {
      if (this.stopping === turn.id) this.stopped();
      turn.endedAt ??= performance.now();
      turn.outcome ??= typeof frame.outcome === "string" ? frame.outcome : turn.error === null ? "completed" : "error";
    }
  }

  /** What is sent, with the question that an answer is for: the hooks do not say it. */
  meant(text: string): string {
    if (!/"cf_agent_tool_(result|approval)"/.test(text)) return text;
    const frame = parse(text);
    const question = this.questions.get(String(frame?.toolCallId));
    return frame && question && frame.approvalId === undefined ? JSON.stringify({ ...frame, approvalId: question }) : text;
  }

  private chunk(turn: Turn, frame: Record<string, unknown>, body: string): void {
    const chunk = parse(body) as Chunk | null;
    if (!chunk) return;
    const seq = typeof frame.seq === "number" ? frame.seq : null;
    const replay = frame.replay === true;
    if (seq !== null && turn.chunks.some((known) => known.seq === seq)) return; // a replay of what we have
    if (turn.chunks.length < CHUNKS) turn.chunks.push({ seq, at: performance.now(), replay, chunk });
    if (typeof chunk.toolCallId !== "string") return;
    const asks = (chunk as { approvalId?: unknown }).approvalId;
    if (chunk.type === "tool-approval-request" && typeof asks === "string") this.questions.set(chunk.toolCallId, asks);
    if (replay) return;
    if (chunk.type === "tool-input-available") this.starts.set(chunk.toolCallId, performance.now());
    else if (/^tool-output-(available|error)$/.test(chunk.type) && chunk.preliminary !== true) {
      this.settled(chunk.toolCallId);
    }
  }

  /** The result of an approved tool comes with its message, before the chunk that repeats it. */
  private updated(message: unknown): void {
    const parts = (message as { parts?: CallPart[] } | undefined)?.parts ?? [];
    for (const { toolCallId, state, approval } of parts) {
      if (approval?.id && approval.descriptor?.answers) this.answers.set(approval.id, approval.descriptor.answers);
      if (toolCallId && (state === "output-available" || state === "output-error")) this.settled(toolCallId);
      if (toolCallId && state === "approval-requested" && approval?.id) this.questions.set(toolCallId, approval.id);
      if (toolCallId && state === "approval-requested") this.asking.set(toolCallId, (this.asking.get(toolCallId) ?? 0) + 1);
    }
  }

  private happened({ kind, runId, body }: RunEvent, replay: boolean): void {
    const chunk = kind === "chunk" ? String(parse(body ?? "")?.type) : "";
    if (kind !== "chunk" || ["start", "finish", "finish-step"].includes(chunk)) this.rested++;
    if (replay && kind !== "chunk" && kind !== "started") this.past.add(runId);
  }

  private settled(id: string): void {
    const start = this.starts.get(id);
    if (start === undefined) return;
    this.starts.delete(id);
    this.durations.set(id, (performance.now() - start) / 1000);
  }

  private turn(id: string, continuation: boolean): Turn {
    const known = this.turns.find((turn) => turn.id === id);
    if (known) return known;
    const turn: Turn = {
      id,
      startedAt: performance.now(),
      endedAt: null,
      outcome: null,
      error: null,
      continuation,
      chunks: [],
    };
    this.turns = [...this.turns.slice(1 - TURNS), turn];
    return turn;
  }

  private add(way: Frame["way"], type: string, hint: string, text: string): void {
    const kept = text.length > KEPT_TEXT ? `${text.slice(0, KEPT_TEXT)} … (${text.length} characters)` : text;
    this.frames.push({ n: this.count++, at: Date.now(), way, type, hint, text: kept, size: text.length });
    if (this.frames.length > FRAMES * 1.2) this.frames = this.frames.slice(-FRAMES);
    this.changed();
  }

  /** Listeners are told now and then. Who renders meanwhile sees a new version, or React would forget its effects. */
  private changed(): void {
    this.version++;
    this.timer ??= setTimeout(() => {
      this.timer = null;
      for (const listener of this.listeners) listener();
    }, 50);
  }
}

/** A WebSocket class that tells the tap what passes through it. */
export function tapped(tap: Tap): typeof WebSocket {
  return class TappedSocket extends WebSocket {
    constructor(url: string | URL, protocols?: string | string[]) {
      super(url, protocols);
      tap.socket("connecting");
      this.addEventListener("open", () => tap.socket("open"));
      this.addEventListener("close", (e) => tap.socket("closed", `${e.code} ${e.reason}`.trim(), e.code));
      this.addEventListener("message", (e) => {
        if (typeof e.data === "string") tap.received(e.data);
      });
    }

    override send(data: string | ArrayBufferLike | Blob | ArrayBufferView<ArrayBuffer>): void {
      if (typeof data !== "string") return super.send(data as Blob);
      const text = tap.meant(data);
      tap.sent(text);
      super.send(text);
    }
  };
}

export function useTap(tap: Tap): Tap {
  useSyncExternalStore(tap.subscribe, tap.snapshot);
  return tap;
}

function parse(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

const name = (frame: Record<string, unknown>): string =>
  String(frame.type ?? "(no type)").replace(/^cf_agent_(use_chat_)?/, "");

function hintOf(frame: Record<string, unknown>): string {
  const hints: string[] = [];
  if (typeof frame.seq === "number") hints.push(`#${frame.seq}`);
  if (typeof frame.body === "string" && frame.body !== "") {
    const chunk = parse(frame.body);
    hints.push(frame.error === true ? "error" : String(chunk?.type ?? ""));
    const text = chunk?.delta ?? chunk?.inputTextDelta ?? chunk?.toolName;
    if (typeof text === "string") hints.push(text);
  }
  const run = frame.event as { kind?: unknown; runId?: unknown } | undefined;
  if (run?.kind !== undefined) hints.push(`#${frame.sequence} ${run.kind} ${run.runId}`);
  if (frame.replay === true) hints.push("replay");
  if (frame.done === true) hints.push(`done ${frame.outcome ?? ""}`.trim());
  if (Array.isArray(frame.messages)) hints.push(`${frame.messages.length} messages`);
  if (typeof frame.phase === "string") hints.push(`${frame.phase} ${frame.tokenEstimate} tokens`);
  for (const key of ["reason", "toolName", "method", "recovering", "approved"]) {
    if (key in frame) hints.push(`${key === "toolName" ? "" : `${key} `}${String(frame[key])}`);
  }
  return hints.join(" ").slice(0, 120);
}
