/** The sessions of one conversation, and a search through what was said in them. */

import { useEffect, useId, useState } from "react";
import { Confirm } from "./confirm";
import { Icon } from "./icons";
import { nameOf, useMemory, type Hit, type MemoryFeed } from "./memory";
import { day } from "./rows";

type Props = { memory: MemoryFeed; onDone: () => void };

export function SessionList({ memory, onDone }: Props) {
  const { sessions } = useMemory(memory);
  const [editing, setEditing] = useState<string | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  if (!sessions) return null;
  const { live } = sessions;
  const attempt = async (work: Promise<string | null>, closes = false) => {
    const said = await work;
    setTrouble(said);
    if (!said && closes) onDone();
  };
  return (
    <div className="sessions" role="group" aria-label="Sessions of this conversation">
      {sessions.sessions.length > 1 && (
        <ul>
          {sessions.sessions.map((one) => {
            const name = nameOf(one);
            const here = one.id === live;
            if (editing === one.id) {
              return (
                <li key={one.id}>
                  <Rename
                    title={one.name}
                    label="Name of the session"
                    onDone={(text) => {
                      setEditing(null);
                      if (text) void attempt(memory.rename(one.id, text));
                    }}
                  />
                </li>
              );
            }
            return (
              <li key={one.id} className={here ? "here" : ""} data-session={one.id}>
                <button
                  type="button"
                  className="row"
                  aria-current={here ? "true" : undefined}
                  onClick={() => !here && void attempt(memory.open(one.id), true)}
                >
                  {name}
                </button>
                <span className="row-tools">
                  <button
                    type="button"
                    className="ghost small"
                    aria-label={`Rename the session ${name}`}
                    title="Rename"
                    onClick={() => setEditing(one.id)}
                  >
                    <Icon name="pen" size={15} />
                  </button>
                  {!here && (
                    <Confirm
                      label={`Delete the session ${name}`}
                      title="Delete"
                      className="ghost small"
                      question="Delete this session?"
                      action="Delete"
                      icon={<Icon name="bin" size={15} />}
                      onYes={() => void attempt(memory.remove(one.id))}
                    >
                      The agent forgets “{name}” for good: its messages, its summaries and its memory blocks.
                    </Confirm>
                  )}
                </span>
              </li>
            );
          })}
        </ul>
      )}
      <button
        type="button"
        className="ghost add"
        onClick={() => void attempt(memory.create(`Session ${sessions.sessions.length + 1}`), true)}
      >
        <Icon name="plus" size={14} /> New session
      </button>
      {trouble && (
        <p className="tool-error" role="alert">
          {trouble}
        </p>
      )}
    </div>
  );
}

type RenameProps = { title: string; label: string; onDone: (text: string | null) => void };

export function Rename({ title, label, onDone }: RenameProps) {
  const [text, setText] = useState(title);
  return (
    <input
      className="rename"
      aria-label={label}
      value={text}
      maxLength={80}
      autoFocus
      onFocus={(event) => event.target.select()}
      onChange={(event) => setText(event.target.value)}
      onBlur={() => onDone(text.trim() || null)}
      onKeyDown={(event) => {
        if (event.key === "Enter") onDone(text.trim() || null);
        if (event.key === "Escape") onDone(null);
        event.stopPropagation();
      }}
    />
  );
}

// --- search

type SearchProps = { memory: MemoryFeed; words: string; onWords: (words: string) => void; onDone: () => void };

export function Search({ memory, words, onWords, onDone }: SearchProps) {
  const { sessions } = useMemory(memory);
  const scope = useId();
  const [everywhere, setEverywhere] = useState(false);
  const [found, setFound] = useState<{ hits: Hit[]; trouble: string | null } | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  const wanted = words.trim();
  const live = sessions?.live;
  useEffect(() => {
    setTrouble(null);
    if (!wanted) return setFound(null);
    let late = false;
    const timer = setTimeout(async () => {
      const told = await memory.search(wanted, everywhere);
      if (!late) setFound({ hits: told.value?.hits ?? [], trouble: told.trouble });
    }, 200);
    return () => {
      late = true;
      clearTimeout(timer);
    };
  }, [memory, wanted, everywhere, live]);
  const go = async (hit: Hit) => {
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
            {[false, true].map((all) => (
              <label key={String(all)}>
                <input type="radio" name={scope} checked={everywhere === all} onChange={() => setEverywhere(all)} />
                {all ? "All sessions" : "This session"}
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
              <li key={`${hit.session}/${hit.id}`} data-hit={hit.id}>
                <HitRow hit={hit} named={everywhere} onGo={() => void go(hit)} />
              </li>
            ))}
          </ol>
        </>
      )}
    </search>
  );
}

const tally = (count: number): string => (count === 0 ? "Nothing found." : count === 1 ? "1 hit" : `${count} hits`);

function HitRow({ hit, named, onGo }: { hit: Hit; named: boolean; onGo: () => void }) {
  const facts = [hit.role === "user" ? "You" : "Answer"];
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
