/** The sessions of one conversation. */

import { useState } from "react";
import { Confirm } from "./confirm";
import { Icon } from "./icons";
import { nameOf, useMemory, type MemoryFeed } from "./memory";

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
