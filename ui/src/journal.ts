/** What the server's journal says about this agent: turns, calls, versions of answers, and events as they happen. */

import type { UIMessage } from "ai";
import { useSyncExternalStore } from "react";
import { ask, type Told } from "./asking";
import type { Extensions, Source } from "./extensions";
import { FilesFeed } from "./files";
import { MemoryFeed } from "./memory";
import type { DeliveryRow, Met } from "./messengers";
import type { Hop } from "./places";
import type { Known } from "./servers";
import type { Instructions, Languages, SkillFile, Skills } from "./skills";
import type { Chunk } from "./tap";

export type Usage = Partial<
  Record<
    "input_tokens" | "output_tokens" | "total_tokens" | "reasoning_tokens" | "cached_input_tokens" | "cache_write_tokens",
    number
  >
>;

export type Step = { number: number; model: string; finish_reason?: string; duration_ms?: number; usage?: Usage };

export type TurnRow = {
  id: string;
  request_id: string;
  trigger: string;
  status: string;
  continuation: boolean;
  message_id: string | null;
  error: string | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  /** `null`: it ran in an earlier process of the server, which counted for itself. */
  steps: Step[] | null;
  usage: Usage | null;
};

export type CallRow = {
  turn: string;
  call_id: string;
  tool: string;
  step: number;
  state: string;
  on_interrupt: string;
  input: unknown;
  output?: unknown;
  error?: unknown;
  asked_at: number;
  started_at: number | null;
  settled_at: number | null;
};

export type JournalChunk = { seq: number; commit: number; written_at: number | null; chunk: Chunk };
export type Fork = { versions: string[]; active: number };
/** A turn that did not end well: the message of its answer, if it has one, and the one it was to answer. */
export type Ending = { message_id: string | null; question: string | null; status: string; error: string | null };
/** A run of a child: what its frames do not tell. */
export type RunRow = {
  run_id: string;
  class: string;
  kebab: string;
  call_id: string | null;
  title: string;
  preview: string | null;
  status: string;
  started_at: number;
  ended_at: number | null;
  usage: Usage | null;
  /** The child is at rest, and its run is not over: it waits for a person. */
  is_waiting: boolean;
  /** The message of the answer in which it was asked for, if that is known. */
  answer_id: string | null;
};
export type Journal = {
  turns: TurnRow[];
  calls: CallRow[];
  forks: Record<string, Fork>;
  endings: Ending[];
  runs: RunRow[];
  /** The chat that the conversation is in, if it came by a messenger. */
  messenger: Met | null;
  deliveries: DeliveryRow[];
  /** The server's clock. */
  now: number;
};

type Span = { started_at: number | null; ended_at: number | null };
export type FamilyRun = Span & { run_id: string; title: string; preview: string | null; status: string; child: Member | null };
export type FamilyCall = {
  call_id: string;
  tool: string;
  state: string;
  asked_at: number;
  started_at: number | null;
  settled_at: number | null;
  runs: FamilyRun[];
};
export type FamilyTurn = Span & {
  id: string;
  trigger: string;
  status: string;
  created_at: number;
  usage: Usage | null;
  calls: FamilyCall[];
};
/** An agent of a family: its turns, the runs that no call asked for, the children that were only talked to. */
export type Member = {
  class: string;
  name: string;
  path: Hop[];
  turns: FamilyTurn[];
  runs: FamilyRun[];
  children: Member[];
};
export type Family = Member & { members: number; is_cut: boolean };
export type Version = { id: string; messages: UIMessage[] };
export type Happening = {
  id: string;
  type: string;
  channel: string;
  timestamp: number;
  payload: Record<string, unknown>;
};

const EVENTS = 1000;
const PAUSE = 250;

/** The journal of one agent, read from the server whenever something happened. */
export class JournalFeed {
  journal: Journal | null = null;
  /** `absent`: the page is served by something that does not show its journal, or not to us. */
  status: "loading" | "ready" | "absent" = "loading";
  /** Why it is absent, in the server's words. */
  reason = "This server does not show its journal to the page.";
  events: Happening[] = [];
  line: "open" | "closed" = "closed";
  /** Grows with every look at the journal. */
  looked = 0;
  /** What the agent remembers. It is looked at whenever the journal is. */
  memory = new MemoryFeed(<T>(rest: string, body?: Record<string, string>) => this.ask<T>(rest, body));
  /** Its files, likewise. */
  files = new FilesFeed(
    <T>(rest: string, body?: Record<string, string>) => this.ask<T>(rest, body),
    (rest) => this.url(rest),
  );

  private version = 0;
  private listeners = new Set<() => void>();
  private seen = new Set<string>();
  private timer: ReturnType<typeof setTimeout> | null = null;
  private reading = false;
  private again = false;

  /** By how many milliseconds this browser's clock is ahead of the server's. */
  ahead = 0;

  /** `place`: the agent, as `addressOf` says it. */
  constructor(private place: string) {}

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  snapshot = (): number => this.version;

  /** Look again, soon. Many wishes in a row are one look. */
  refresh = (): void => {
    this.timer ??= setTimeout(() => {
      this.timer = null;
      void this.read();
    }, this.looked ? PAUSE : 0);
  };

  /** Follow what happens until told to stop. */
  watch(): () => void {
    let socket: WebSocket | null = null;
    let timer: ReturnType<typeof setTimeout> | null = null;
    let stopped = false;
    let wait = 500;
    const connect = () => {
      timer = null;
      if (stopped || this.status === "absent") return;
      if (this.status === "loading") {
        timer = setTimeout(connect, 100);
        return;
      }
      const scheme = location.protocol === "https:" ? "wss" : "ws";
      socket = new WebSocket(`${scheme}://${location.host}/everthink/events/${this.place}`);
      socket.onopen = () => {
        wait = 500;
        this.line = "open";
        this.changed();
      };
      socket.onmessage = (event) => this.happened(JSON.parse(String(event.data)) as Happening);
      socket.onclose = () => {
        this.line = "closed";
        this.changed();
        if (stopped) return;
        timer = setTimeout(connect, wait);
        wait = Math.min(wait * 2, 5000);
      };
    };
    connect();
    this.refresh();
    return () => {
      stopped = true;
      if (timer) clearTimeout(timer);
      socket?.close();
    };
  }

  clearEvents(): void {
    this.events = [];
    this.changed();
  }

  async chunks(turn: string): Promise<JournalChunk[]> {
    const found = await this.get<{ chunks: JournalChunk[] }>(`/turns/${encodeURIComponent(turn)}`);
    return found?.chunks ?? [];
  }

  async versions(of: string): Promise<Version[]> {
    const found = await this.get<{ versions: Version[] }>(`/answers/${encodeURIComponent(of)}`);
    return found?.versions ?? [];
  }

  /** Let the conversation go on from this message. Returns what speaks against it. */
  async goOnFrom(message: string): Promise<string | null> {
    const { trouble } = await this.ask("/leaf", { message });
    this.refresh();
    return trouble;
  }

  // --- children

  family = () => this.get<Family>("/family");
  /** Stop a run of a child. Returns what speaks against it. */
  stopRun = async (id: string) => {
    const { trouble } = await this.ask("/runs/stop", { id });
    this.refresh();
    return trouble;
  };

  // --- MCP servers

  servers = () => this.ask<Known[]>("/servers");
  addServer = async (name: string, url: string) => (await this.ask("/servers", { name, url })).trouble;
  removeServer = async (id: string) => (await this.ask("/servers/remove", { id })).trouble;

  // --- skills

  skills = (again: boolean) => this.ask<Skills>(`/skills${again ? "?again=1" : ""}`);
  skill = (name: string) => this.ask<Instructions>(`/skills/look?name=${encodeURIComponent(name)}`);
  skillFile = (name: string, path: string) => this.ask<SkillFile>(`/skills/file?name=${encodeURIComponent(name)}&path=${encodeURIComponent(path)}`);
  skillLanguages = () => this.ask<Languages>("/skills/languages");
  activateSkill = (name: string) => this.ask<{ added: boolean }>("/skills/activate", { name });

  // --- extensions

  extensions = () => this.ask<Extensions>("/extensions");
  extensionSource = (name: string) => this.ask<{ source: string }>(`/extensions/source?name=${encodeURIComponent(name)}`);
  loadExtension = async (source: Source) => (await this.ask("/extensions/load", source)).trouble;
  unloadExtension = async (name: string) => (await this.ask("/extensions/unload", { name })).trouble;

  /** Ask the inspector, or with a body change something; what it says when it refuses. */
  private ask<T>(rest: string, body?: Record<string, string>): Promise<Told<T>> {
    return ask<T>(this.url(rest), body);
  }

  private url(rest: string): string {
    return `/everthink/inspect/${this.place}${rest}`;
  }

  private async get<T>(rest: string): Promise<T | null> {
    try {
      const answer = await fetch(this.url(rest), { headers: { accept: "application/json" } });
      if (answer.ok) return (await answer.json()) as T;
      if (this.status === "loading" && answer.status < 500) {
        this.status = "absent";
        const told = (await answer.json()) as { error?: string };
        this.reason = told.error ?? this.reason;
      }
    } catch {
      // Not reached, or no JSON: a server that restarts is asked again with the next wish.
    }
    return null;
  }

  private async read(): Promise<void> {
    if (this.reading) {
      this.again = true;
      return;
    }
    this.reading = true;
    const found = await this.get<Journal>("");
    this.reading = false;
    if (found) {
      this.journal = found;
      this.ahead = Date.now() - found.now;
      this.status = "ready";
    }
    this.looked++;
    this.changed();
    if (found) void this.memory.read();
    if (found) void this.files.read();
    if (this.again) {
      this.again = false;
      this.refresh();
    }
  }

  private happened(event: Happening): void {
    if (this.seen.has(event.id)) return; // told again after a reconnect
    this.seen.add(event.id);
    this.events = [...this.events.slice(1 - EVENTS), event];
    this.changed();
    this.refresh();
  }

  private changed(): void {
    this.version++;
    for (const listener of this.listeners) listener();
  }
}

export function useFeed(feed: JournalFeed): JournalFeed {
  useSyncExternalStore(feed.subscribe, feed.snapshot);
  return feed;
}
