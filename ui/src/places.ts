/** Which agents there are, which conversations, and where we are. */

import { useCallback, useEffect, useRef, useState } from "react";
import { ask } from "./asking";
import type { Met } from "./messengers";

/** `stand_in`: the demo model answers, and why. `chats`: false for one without a conversation. */
export type AgentInfo = { class: string; kebab: string; chats?: boolean; about?: string; examples?: string[]; stand_in?: string };
/** An agent below another one: its class as in an address, and its name. */
export type Hop = { agent: string; name: string };
/** A child of a conversation, with its latest run if it was asked by one. */
export type ChildInfo = {
  class: string;
  name: string;
  path: Hop[];
  title: string;
  preview: string | null;
  status: string | null;
  messenger?: Met | null;
};
export type Conversation = { name: string; title: string; at: number; messenger?: Met | null; children?: ChildInfo[] };
/** A conversation, or with `sub` that of a child in it: each below the one before. */
export type Place = { agent: string; name: string; sub?: Hop[] };

const KEY = "everthink.last";

export async function fetchAgents(): Promise<AgentInfo[]> {
  try {
    const answer = await fetch("/everthink/agents", { headers: { accept: "application/json" } });
    if (!answer.ok) return [];
    const list: unknown = await answer.json();
    if (!Array.isArray(list)) return [];
    const agents = list.filter((one): one is AgentInfo => typeof one?.kebab === "string" && typeof one?.class === "string");
    return agents.filter((one) => one.chats !== false);
  } catch {
    return [];
  }
}

/** `think-peer` as `ThinkPeer`, for agents we know only from the address. */
export const className = (kebab: string): string =>
  kebab.replace(/(^|-)([a-z0-9])/g, (_, __, letter: string) => letter.toUpperCase());

export function placeFromUrl(): Partial<Place> {
  const query = new URLSearchParams(location.search);
  return { agent: query.get("agent") ?? undefined, name: query.get("name") ?? undefined, sub: query.getAll("sub").map(hop) };
}

function hop(written: string): Hop {
  const at = written.indexOf("/");
  return { agent: written.slice(0, at), name: written.slice(at + 1) };
}

export function urlOf(place: Place): string {
  const query = new URLSearchParams(location.search);
  query.set("agent", place.agent);
  query.set("name", place.name);
  query.delete("sub");
  for (const { agent, name } of place.sub ?? []) query.append("sub", `${agent}/${name}`);
  return `${location.pathname}?${query}`;
}

/** Where an agent is below `/agents`, and below the inspector's addresses. */
export const addressOf = ({ agent, name, sub = [] }: Place): string =>
  [agent, name, ...sub.flatMap((one) => ["sub", one.agent, encodeURIComponent(one.name)])].join("/");

export const isSame = (one: Hop[], other: Hop[]): boolean => JSON.stringify(one) === JSON.stringify(other);

/** What a child was asked, in words: the only text in it, or all of it. */
export function aboutOf(preview: unknown): string {
  if (typeof preview !== "string") return preview === undefined || preview === null ? "" : JSON.stringify(preview);
  try {
    const value: unknown = JSON.parse(preview);
    if (typeof value !== "object" || value === null) return preview;
    const texts = Object.values(value).filter((one) => typeof one === "string");
    return texts.length === 1 ? texts[0]! : preview;
  } catch {
    return preview; // a text, or the beginning of a long value
  }
}

export function newName(): string {
  const letters = "abcdefghijkmnpqrstuvwxyz23456789";
  const random = crypto.getRandomValues(new Uint8Array(8));
  return `chat-${Array.from(random, (byte) => letters[byte % letters.length]).join("")}`;
}

// --- where this browser was last

function book(): Record<string, string> {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return typeof found === "object" && found !== null ? (found as Record<string, string>) : {};
  } catch {
    return {};
  }
}

function write(changed: Record<string, string>): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(changed));
  } catch {
    // Private mode or full: then a new conversation is begun next time.
  }
}

const visited = ({ agent, name }: Place): void => write({ ...book(), [agent]: name });

function forgotten({ agent, name }: Place): void {
  const { [agent]: last, ...others } = book();
  if (last === name) write(others);
}

export const latest = (agent: string): string | undefined => book()[agent];

// --- the conversations of an agent class, from the server

/** Whether one may enter the conversation `name`; if not, perhaps the one that is called like oneself. */
export type Entry = { name: string; open: boolean; yours?: string | null };
type List = { conversations: Conversation[]; more: boolean; entry?: Entry };
type Heard = { agent: string; list: Conversation[]; entry: Entry | null; trouble: string | null };

/** Those one may look at, the one used last first; the one that is open is among them before anything is said. */
export function useConversations(agent: string | undefined, name: string | undefined) {
  const [told, setTold] = useState<Heard | null>(null);
  // What was said first here, until the server tells the name.
  const [first, setFirst] = useState<Record<string, string>>({});

  // Where we are, and where we went last with each agent: answers come when we may be elsewhere already.
  const here = useRef({ agent, name });
  here.current = { agent, name };
  const went = useRef<Record<string, string>>({});
  if (agent && name) went.current[agent] = name;
  const asked = useRef(0);
  const answered = useRef(0);

  const refresh = useCallback(async () => {
    const { agent, name } = here.current;
    if (!agent) return;
    const number = ++asked.current;
    const entering = name ? `?open=${encodeURIComponent(name)}` : "";
    const { value, trouble } = await ask<List>(`/everthink/conversations/${agent}${entering}`);
    // One that may not be entered is not where we were. Of one that was left meanwhile the answer still counts.
    const mayEnter = value?.entry ? value.entry.open : trouble !== null;
    if (name && mayEnter && went.current[agent] === name) visited({ agent, name });
    if (number < answered.current) return; // a later question was answered before
    answered.current = number;
    setTold((before) => ({
      agent,
      list: value?.conversations ?? (before?.agent === agent ? before.list : []),
      entry: value?.entry ?? null,
      trouble,
    }));
  }, []);

  useEffect(() => {
    void refresh();
    const look = () => document.visibilityState === "visible" && void refresh();
    addEventListener("visibilitychange", look);
    addEventListener("focus", look);
    return () => {
      removeEventListener("visibilitychange", look);
      removeEventListener("focus", look);
    };
  }, [refresh, agent, name]);

  /** Returns what speaks against it. */
  const change = useCallback(
    async (name: string, deed: "rename" | "erase", body: Record<string, string>) => {
      const { trouble } = await ask(`/everthink/conversations/${agent}/${name}/${deed}`, body);
      if (agent && deed === "erase" && trouble === null) forgotten({ agent, name });
      await refresh();
      return trouble;
    },
    [agent, refresh],
  );
  const rename = useCallback((name: string, title: string) => change(name, "rename", { title }), [change]);
  const erase = useCallback((name: string) => change(name, "erase", {}), [change]);
  const begun = useCallback((name: string, text: string) => {
    setFirst((known) => (known[name] ? known : { ...known, [name]: text.slice(0, 60) }));
  }, []);

  const known = told?.agent === agent ? (told?.list ?? []) : [];
  const named = known.map((one) => ({ ...one, title: one.title || first[one.name] || "" }));
  const list = !name || known.some((one) => one.name === name) ? named : [{ name, title: first[name] ?? "", at: 0 }, ...named];
  const entry = told?.agent === agent && told?.entry?.name === name ? (told?.entry ?? null) : null;
  return { list, entry, trouble: told?.trouble ?? null, refresh, rename, erase, begun };
}
