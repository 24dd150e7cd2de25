/** A search through what was said: in this session, in all of them, in all conversations. */

import { useEffect, useId, useState } from "react";
import { ask } from "./asking";
import { nameOf, useMemory, type Hit, type MemoryFeed } from "./memory";
import type { Place } from "./places";
import { day } from "./rows";

/** A hit in some conversation. */
export type Elsewhere = Hit & { conversation: string; title: string };

const SCOPES = { session: "This session", sessions: "All sessions", all: "All conversations" } as const;
type Scope = keyof typeof SCOPES;

type SearchProps = {
  place: Place;
  memory: MemoryFeed;
  words: string;
  onWords: (words: string) => void;
  onDone: () => void;
  onElsewhere: (hit: Elsewhere) => void;
};

export function Search({ place, memory, words, onWords, onDone, onElsewhere }: SearchProps) {
  const { sessions } = useMemory(memory);
  const group = useId();
  const [scope, setScope] = useState<Scope>("session");
  const [found, setFound] = useState<{ hits: (Hit | Elsewhere)[]; trouble: string | null } | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  const wanted = words.trim();
  const live = sessions?.live;
  useEffect(() => {
    setTrouble(null);
    if (!wanted) return setFound(null);
    let late = false;
    const timer = setTimeout(async () => {
      const told = await (scope === "all"
        ? ask<{ hits: Elsewhere[] }>(`/everthink/conversations/${place.agent}?q=${encodeURIComponent(wanted)}`)
        : memory.search(wanted, scope === "sessions"));
      if (!late) setFound({ hits: told.value?.hits ?? [], trouble: told.trouble });
    }, 200);
    return () => {
      late = true;
      clearTimeout(timer);
    };
  }, [memory, wanted, scope, live, place.agent]);
  const go = async (hit: Hit | Elsewhere) => {
    if ("conversation" in hit && hit.conversation !== place.name) return onElsewhere(hit);
    const said = await memory.goTo(hit);
    setTrouble(said);
    if (!said) onDone();
  };
  return (
    <search className="search">
      <input
        type="search"
        aria-label="Search what was said"
        placeholder="Search what was said"
        value={words}
        onChange={(event) => onWords(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape" || !words) return;
          event.stopPropagation();
          onWords("");
        }}
      />
      {wanted && (
        <>
          <div className="scope" role="radiogroup" aria-label="Where to search">
            {(Object.keys(SCOPES) as Scope[]).map((one) => (
              <label key={one}>
                <input type="radio" name={group} checked={scope === one} onChange={() => setScope(one)} />
                {SCOPES[one]}
              </label>
            ))}
          </div>
          <p className="quiet" role="status">
            {found === null ? "Searching…" : (found.trouble ?? tally(found.hits.length))}
          </p>
          {trouble && (
            <p className="tool-error" role="alert">
              {trouble}
            </p>
          )}
          <ol className="hits" aria-label="Hits">
            {found?.hits.map((hit) => (
              <li key={`${"conversation" in hit ? hit.conversation : ""}/${hit.session}/${hit.id}`} data-hit={hit.id}>
                <HitRow hit={hit} named={scope === "sessions"} onGo={() => void go(hit)} />
              </li>
            ))}
          </ol>
        </>
      )}
    </search>
  );
}

const tally = (count: number): string => (count === 0 ? "Nothing found." : count === 1 ? "1 hit" : `${count} hits`);

function HitRow({ hit, named, onGo }: { hit: Hit | Elsewhere; named: boolean; onGo: () => void }) {
  const facts = [hit.role === "user" ? "You" : "Answer"];
  if ("conversation" in hit) facts.push(hit.title || hit.conversation);
  if (named) facts.push(nameOf({ id: hit.session, name: hit.session_name }));
  if (hit.where === "summarised") facts.push("summarised");
  if (hit.where === "branch") facts.push("another version");
  facts.push(day(hit.created_at));
  const head = <span className="quiet">{facts.join(" · ")}</span>;
  // A message of another branch is nowhere in the conversation: it is read right here.
  if (hit.where === "branch") {
    return (
      <details>
        <summary>
          {head}
          <Snippet text={hit.snippet} />
        </summary>
        <p className="said">{hit.text}</p>
      </details>
    );
  }
  return (
    <button type="button" onClick={onGo}>
      {head}
      <Snippet text={hit.snippet} />
    </button>
  );
}

/** Hits stand between `**`. It is text, whatever it holds. */
function Snippet({ text }: { text: string }) {
  return (
    <span className="snippet">
      {text.split("**").map((piece, index) => (index % 2 ? <mark key={index}>{piece}</mark> : piece))}
    </span>
  );
}
