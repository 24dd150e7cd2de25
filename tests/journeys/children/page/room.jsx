// The published hooks and nothing else: a conversation, the runs in it, and the child of a run when it is opened.

import { useAgentChat } from "@cloudflare/think/react";
import { useAgent, useAgentToolEvents } from "agents/react";
import { StrictMode, Suspense, useState } from "react";
import { createRoot } from "react-dom/client";

const room = new URLSearchParams(location.search).get("room");
const line = { minReconnectionDelay: 20, maxReconnectionDelay: 200 };

/** Every text that a run ever had, by its id. */
const told = { shown: {}, within: [], identities: [] };

const textOf = ({ parts }) => parts.map((part) => (part.type === "text" ? part.text : "")).join("");

function note(list, text) {
  if (list.at(-1) !== text) list.push(text);
}

/** The child's own conversation, at its own address. */
function Within({ run }) {
  const agent = useAgent({
    agent: "Assistant",
    name: room,
    sub: [run.subAgent],
    onIdentity: (name, kind) => told.identities.push(`${kind}/${name}`),
    ...line,
  });
  const chat = useAgentChat({ agent });
  window.within = { agent, chat };
  const answers = chat.messages.filter((message) => message.role === "assistant").map(textOf);
  note(told.within, answers.join("|"));
  return (
    <section data-within={run.runId} data-line={agent.identified ? "open" : "closed"} data-status={chat.status}>
      <h2>{run.runId}</h2>
      {chat.messages.map((message) => (
        <p key={message.id} data-said={message.role}>
          {textOf(message)}
        </p>
      ))}
    </section>
  );
}

function Room() {
  const agent = useAgent({ agent: "Assistant", name: room, ...line });
  const chat = useAgentChat({ agent });
  const runs = useAgentToolEvents({ agent });
  const [open, setOpen] = useState(null);
  window.hooks = { agent, chat, runs, told };

  const busy = chat.isStreaming || ["submitted", "streaming"].includes(chat.status);
  return (
    <main data-line={agent.identified ? "open" : "closed"} data-status={chat.status} data-busy={busy}>
      <h1>{room}</h1>
      {chat.messages.map((message) => (
        <article key={message.id} data-role={message.role}>
          <p>{textOf(message)}</p>
        </article>
      ))}
      {Object.values(runs.runsById).map((run) => {
        note((told.shown[run.runId] ??= []), textOf(run));
        return (
          <button key={run.runId} data-run={run.runId} data-state={run.status} onClick={() => setOpen(run.runId)}>
            {textOf(run)}
          </button>
        );
      })}
      {open && (
        <Suspense fallback="opening">
          <Within run={runs.runsById[open]} />
        </Suspense>
      )}
    </main>
  );
}

createRoot(document.getElementById("root")).render(
  <StrictMode>
    <Suspense fallback="loading">
      <Room />
    </Suspense>
  </StrictMode>,
);
