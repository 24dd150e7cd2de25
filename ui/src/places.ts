/** Which agents there are, which conversations this browser knows, and where we are. */

import { useCallback, useEffect, useState } from "react";

export type AgentInfo = { class: string; kebab: string; about?: string; examples?: string[] };
export type Conversation = { name: string; title: string; at: number };
export type Place = { agent: string; name: string };

const KEY = "everthink.conversations";
const KNOWN = 200;

export async function fetchAgents(): Promise<AgentInfo[]> {
  try {
    const answer = await fetch("/everthink/agents", { headers: { accept: "application/json" } });
    if (!answer.ok) return [];
    const list: unknown = await answer.json();
    if (!Array.isArray(list)) return [];
    return list.filter((one): one is AgentInfo => typeof one?.kebab === "string" && typeof one?.class === "string");
  } catch {
    return [];
  }
}

/** `think-peer` as `ThinkPeer`, for agents we know only from the address. */
export const className = (kebab: string): string =>
  kebab.replace(/(^|-)([a-z0-9])/g, (_, __, letter: string) => letter.toUpperCase());

export function placeFromUrl(): Partial<Place> {
  const query = new URLSearchParams(location.search);
  return { agent: query.get("agent") ?? undefined, name: query.get("name") ?? undefined };
}

export function urlOf(place: Place): string {
  const query = new URLSearchParams(location.search);
  query.set("agent", place.agent);
  query.set("name", place.name);
  return `${location.pathname}?${query}`;
}

export function newName(): string {
  const letters = "abcdefghijkmnpqrstuvwxyz23456789";
  const random = crypto.getRandomValues(new Uint8Array(8));
  return `chat-${Array.from(random, (byte) => letters[byte % letters.length]).join("")}`;
}

type Book = Record<string, Conversation[]>;

function read(): Book {
  try {
    const book: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return typeof book === "object" && book !== null ? (book as Book) : {};
  } catch {
    return {};
  }
}

function write(book: Book): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(book));
  } catch {
    // Private mode or full: the list then lasts as long as the page.
  }
}

export const latest = (agent: string): string | undefined =>
  (read()[agent] ?? []).toSorted((a, b) => b.at - a.at)[0]?.name;

/** The conversations of one agent, newest first, shared between the tabs of this browser. */
export function useConversations(agent: string | undefined) {
  const [book, setBook] = useState(read);

  useEffect(() => {
    const follow = (event: StorageEvent) => event.key === KEY && setBook(read());
    addEventListener("storage", follow);
    return () => removeEventListener("storage", follow);
  }, []);

  const change = useCallback(
    (edit: (list: Conversation[]) => Conversation[]) => {
      if (!agent) return;
      const now = read();
      now[agent] = edit(now[agent] ?? []).toSorted((a, b) => b.at - a.at).slice(0, KNOWN);
      write(now);
      setBook(now);
    },
    [agent],
  );

  const remember = useCallback(
    (name: string) =>
      change((list) => (list.some((one) => one.name === name) ? list : [...list, { name, title: "", at: Date.now() }])),
    [change],
  );
  const rename = useCallback(
    (name: string, title: string) => change((list) => list.map((one) => (one.name === name ? { ...one, title } : one))),
    [change],
  );
  /** The first message names a conversation that has no name yet. */
  const touch = useCallback(
    (name: string, title: string) =>
      change((list) =>
        list.map((one) => (one.name === name ? { ...one, title: one.title || title, at: Date.now() } : one)),
      ),
    [change],
  );
  const forget = useCallback((name: string) => change((list) => list.filter((one) => one.name !== name)), [change]);

  return { list: (agent && book[agent]) || [], remember, rename, touch, forget };
}
