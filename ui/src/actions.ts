/** What can be done to the calls of one conversation: approve, answer, tell how long they took. */

import type { useAgentChat } from "@cloudflare/ai-chat/react";
import { useMemo, useRef } from "react";
import type { Connection } from "./connection";
import type { ToolActions } from "./tool-card";
import type { Tap } from "./tap";

type Chat = Pick<ReturnType<typeof useAgentChat>, "addToolApprovalResponse" | "addToolOutput">;

/** `own`: tools that the page answers by itself. `ran`: how long calls took, by the ledger. */
export function useToolActions(chat: Chat, agent: Connection, tap: Tap, own: ReadonlySet<string>, ran: Map<string, number>): ToolActions {
  const ranRef = useRef(ran);
  ranRef.current = ran;
  const chatRef = useRef(chat);
  chatRef.current = chat;
  return useMemo<ToolActions>(
    () => ({
      own,
      approve: (id, approved) => chatRef.current.addToolApprovalResponse({ id, approved }),
      answer: (toolCallId, toolName, output) => chatRef.current.addToolOutput({ toolCallId, toolName, output }),
      // Not by the hook, which would show the answer as the tool's own result and forget the question.
      reply: (toolCallId, toolName, output) =>
        agent.send(JSON.stringify({ type: "cf_agent_tool_result", toolCallId, toolName, output, autoContinue: true })),
      shown: (toolCallId) => tap.asking.get(toolCallId) ?? 0,
      answered: (approvalId) => tap.answers.get(approvalId),
      duration: (toolCallId) => ranRef.current.get(toolCallId) ?? tap.durations.get(toolCallId),
    }),
    [agent, tap, own, [...ran.keys()].join()],
  );
}
