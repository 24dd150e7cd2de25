/** What the agent remembers, as the server tells it: blocks and prompt, summaries, sessions, search. */

import type { UIMessage } from "ai";
import { useSyncExternalStore } from "react";
import type { Told } from "./asking";

export type Block = {
  label: string;
  description: string | null;
  kind: "readonly" | "writable" | "loadable" | "searchable";
  content: string;
  tokens: number;
  max_tokens: number | null;
  can_edit: boolean;
  /** Written since the prompt was made. */
  is_behind: boolean;
};

export type Piece = { name: string; is_used: boolean; text: string; tokens: number; why: string[] };

export type Prompt = {
  text: string;
  tokens: number;
  pieces: Piece[];
  last_refresh: { reason: string; at: number } | null;
  behind: string[];
  trouble: string | null;
};

export type CompactionRow = {
  id: string;
  message_id: string;
  messages: number | null;
  summary: string;
  reason: string;
  tokens_before: number;
  created_at: number;
  state: "shown" | "covered" | "branch";
};

export type Memory = {
  session: { id: string; name: string };
  tokens: { estimate: number | null; threshold: number | null };
  has_compaction: boolean;
  prompt: Prompt;
  blocks: Block[];
  loaded: string[];
  compactions: CompactionRow[];
  omitted: { call_id: string; tool: string | null }[];
};

export type SessionRow = { id: string; name: string; parent: string | null; updated_at: number };
export type Sessions = { live: string; sessions: SessionRow[] };

export type Hit = {
  id: string;
  session: string;
  session_name: string;
  role: string;
  text: string;
  snippet: string;
  created_at: number;
  where: "shown" | "summarised" | "branch";
  summary: string | null;
};

export type Behind = { messages: UIMessage[]; left_out: number };

/** A message that somebody wants to see, and the summary it is behind. */
export type Target = { id: string; summary: string | null };

export const SUMMARY = "compaction_";
export const MAIN = "";
const PATIENCE = 5000;
export const nameOf = (session: { id: string; name: string } | undefined): string =>
  session?.name || (session?.id ? "Session without a name" : "Main session");

type Ask = <T>(rest: string, body?: Record<string, string>) => Promise<Told<T>>;

/** The memory of one agent. Sessions are always known; the rest is read while somebody looks at it. */
export class MemoryFeed {
  memory: Memory | null = null;
  sessions: Sessions | null = null;
  trouble: string | null = null;
  target: Target | null = null;
  /** Somebody looked for a message that is not on the page. */
  missed = false;

  private version = 0;
  private listeners = new Set<() => void>();
  private watchers = 0;
  private reading = false;
  private again = false;

  constructor(private ask: Ask) {}

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  snapshot = (): number => this.version;

  /** Read blocks, prompt and summaries along, until told to stop. */
  watch = (): (() => void) => {
    this.watchers++;
    void this.read();
    return () => {
      this.watchers--;
    };
  };

  read = async (): Promise<void> => {
    if (this.reading) {
      this.again = true;
      return;
    }
    this.reading = true;
    const sessions = await this.ask<Sessions>("/sessions");
    if (sessions.value) this.sessions = sessions.value;
    if (this.watchers > 0) {
      const memory = await this.ask<Memory>("/memory");
      if (memory.value) this.memory = memory.value;
      this.trouble = memory.trouble;
    }
    this.reading = false;
    this.changed();
    if (this.again) {
      this.again = false;
      void this.read();
    }
  };

  get live(): SessionRow | undefined {
    return this.sessions?.sessions.find((one) => one.id === this.sessions?.live);
  }

  // --- blocks and prompt

  write = (label: string, content: string, was: string) => this.change("/memory/blocks", { label, content, was });
  refreshPrompt = () => this.change("/memory/refresh", {});

  /** Returns what there is to say about it. */
  compact = async (): Promise<string> => {
    const done = await this.ask<{ is_shorter: boolean; tokens_before: number; tokens: number }>("/memory/compact", {});
    await this.read();
    if (done.trouble !== null) return done.trouble;
    if (!done.value.is_shorter) return "There was nothing to shorten.";
    return `From ${done.value.tokens_before.toLocaleString("en")} to ${done.value.tokens.toLocaleString("en")} tokens.`;
  };

  /** The messages that a summary stands for. */
  behind = (summary: string) => this.ask<Behind>(`/compacted/${encodeURIComponent(summary)}`);

  // --- sessions

  open = (id: string) => this.change("/sessions/open", { id });
  rename = (id: string, name: string) => this.change("/sessions/rename", { id, name });
  remove = (id: string) => this.change("/sessions/delete", { id });
  create = (name: string) => this.openNew("/sessions", { name });
  fork = (message: string) => this.openNew("/sessions/fork", { id: this.sessions?.live ?? MAIN, message });

  private async openNew(rest: string, body: Record<string, string>): Promise<string | null> {
    const made = await this.ask<SessionRow>(rest, body);
    return made.trouble === null ? this.open(made.value.id) : made.trouble;
  }

  /** Returns what speaks against it. */
  private async change(rest: string, body: Record<string, string>): Promise<string | null> {
    const { trouble } = await this.ask(rest, body);
    await this.read();
    return trouble;
  }

  // --- search

  search = (words: string, everywhere: boolean) =>
    this.ask<{ hits: Hit[] }>(`/search?q=${encodeURIComponent(words)}${everywhere ? "&all=1" : ""}`);

  /** Show a message, in its session. Returns what speaks against it. */
  goTo = async (hit: Hit): Promise<string | null> => {
    if (hit.session !== this.sessions?.live) {
      const trouble = await this.open(hit.session);
      if (trouble) return trouble;
    }
    const target = { id: hit.id, summary: hit.summary };
    this.target = target;
    this.missed = false;
    this.changed();
    setTimeout(() => {
      if (this.target !== target) return;
      this.missed = true; // it is too far back to be shown, and nobody is to be taken there much later
      this.reached();
    }, PATIENCE);
    return null;
  };

  reached = (): void => {
    this.target = null;
    this.changed();
  };

  /** What is looked for may be on the page now. */
  appeared = (): void => this.changed();

  private changed(): void {
    this.version++;
    for (const listener of this.listeners) listener();
  }
}

export function useMemory(memory: MemoryFeed): MemoryFeed {
  useSyncExternalStore(memory.subscribe, memory.snapshot);
  return memory;
}
