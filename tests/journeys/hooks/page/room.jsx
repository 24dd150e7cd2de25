// The published hooks and nothing else: what they say is shown, and `window.hooks` lets a journey use them.

import { useAgentChat } from "@cloudflare/think/react";
import { useAgent } from "agents/react";
import { getToolName, isToolUIPart } from "ai";
import { StrictMode, Suspense } from "react";
import { createRoot } from "react-dom/client";

const asked = new URLSearchParams(location.search);

/** Everything that was ever told or shown, in order. */
const told = { identities: [], states: [], refusals: [], ends: [], shown: [], servers: [] };

const tools = asked.has("bare") ? {} : {
  getLocation: {
    description: "Where are you?",
    parameters: { type: "object", properties: {} },
    execute: async () => ({ city: "Lisbon" }),
  },
};

const textOf = (message) => message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");

function Room() {
  const agent = useAgent({
    agent: "Stage",
    name: asked.get("room"),
    query: asked.has("readonly") ? { readonly: "1" } : undefined,
    minReconnectionDelay: 20,
    maxReconnectionDelay: 200,
    onIdentity: (name, kind) => told.identities.push(`${kind}/${name}`),
    onStateUpdate: (state, source) => told.states.push({ state, source }),
    onStateUpdateError: (error) => told.refusals.push(error),
    onMcpUpdate: (servers) => told.servers.push(servers),
  });
  const chat = useAgentChat({
    agent,
    tools,
    onToolCall: async ({ toolCall, addToolOutput }) => {
      if (!(toolCall.toolName in tools)) return;
      const output = await tools[toolCall.toolName].execute();
      addToolOutput({ toolCallId: toolCall.toolCallId, output });
    },
    autoContinueAfterToolResult: !asked.has("manual"),
    onTurnEnd: (end) => told.ends.push(end),
  });
  window.hooks = { agent, chat, told };

  const answers = chat.messages.filter((message) => message.role === "assistant").map(textOf);
  if (answers.join("|") !== told.shown.at(-1)) told.shown.push(answers.join("|"));
  const busy = chat.isStreaming || chat.isToolContinuation || ["submitted", "streaming"].includes(chat.status);
  return (
    <main data-line={agent.identified ? "open" : "closed"} data-status={chat.status} data-busy={busy}>
      <output id="state">{JSON.stringify(agent.state)}</output>
      <output id="error">{chat.status === "error" ? chat.error?.message : ""}</output>
      {chat.messages.map((message) => (
        <article key={message.id} data-role={message.role}>
          <p>{textOf(message)}</p>
          {message.parts.filter(isToolUIPart).map((part) => (
            <code key={part.toolCallId} data-tool={getToolName(part)} data-state={part.state}>
              {JSON.stringify(part.output ?? part.errorText ?? null)}
            </code>
          ))}
        </article>
      ))}
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
