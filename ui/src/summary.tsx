/** A summary in the conversation: what it says, and the messages it stands for. */

import type { UIMessage } from "ai";
import { useEffect, useState } from "react";
import { Icon } from "./icons";
import { Prose } from "./markdown";
import { useMemory, type Behind, type MemoryFeed } from "./memory";
import { MessageView, textOf } from "./parts";
import type { ToolActions } from "./tool-card";

type Props = { message: UIMessage; memory: MemoryFeed; actions: ToolActions };

export function SummaryCard({ message, memory, actions }: Props) {
  const { memory: known, target } = useMemory(memory);
  const [open, setOpen] = useState(false);
  const [behind, setBehind] = useState<Behind | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  const count = known?.compactions.find((one) => one.message_id === message.id)?.messages ?? null;

  // How many messages it stands for is part of what the server remembers.
  useEffect(() => memory.watch(), [memory]);

  const show = async () => {
    const found = await memory.behind(message.id);
    setBehind(found.value);
    setTrouble(found.trouble);
  };
  const wanted = target?.summary === message.id;
  useEffect(() => {
    if (!wanted) return;
    setOpen(true);
    if (!behind) void show();
  }, [wanted]);

  useEffect(() => {
    if (behind && wanted) memory.appeared();
  }, [behind, wanted]);

  return (
    <article className="turn" data-summary={message.id}>
      <section className="summarised" aria-label="Earlier messages, summarised">
        <details className="fold" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>
            <Icon name="fold" size={16} />
            <span>{count === null ? "Earlier messages, summarised" : `${count} earlier messages, summarised`}</span>
          </summary>
          <Prose text={textOf(message)} />
          <div className="under">
            {behind ? (
              <button type="button" className="small" onClick={() => setBehind(null)}>
                Hide the messages
              </button>
            ) : (
              <button type="button" className="small" onClick={() => void show()}>
                Show the messages
              </button>
            )}
            <span className="quiet">The agent reads the summary; every message is kept.</span>
          </div>
          {trouble && (
            <p className="tool-error" role="alert">
              {trouble}
            </p>
          )}
          {behind && (
            <div className="behind" role="group" aria-label="The messages behind the summary">
              {behind.left_out > 0 && <p className="quiet">{behind.left_out} more are left out here.</p>}
              {behind.messages.map((one) => (
                <div
                  key={one.id}
                  className={`message ${one.role === "user" ? "user" : "assistant"}`}
                  data-behind={one.role}
                  data-message={one.id}
                  tabIndex={-1}
                >
                  <span className="sr-only">{one.role === "user" ? "You said:" : "Answer:"}</span>
                  <MessageView message={one} actions={actions} open={false} live={false} readOnly />
                </div>
              ))}
            </div>
          )}
        </details>
      </section>
    </article>
  );
}
