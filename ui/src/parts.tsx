/** One message, part by part. */

import { getToolName, isToolUIPart, type UIMessage } from "ai";
import { memo } from "react";
import { AttachedChip, attachedIn } from "./attachments";
import { pretty, Prose } from "./markdown";
import { RunCard, useRunsOf } from "./runs";
import { FileView, isSource, Sources } from "./sources";
import { Reasoning, ToolCard, type CardProps, type ToolActions } from "./tool-card";

type Props = {
  message: UIMessage;
  actions: ToolActions;
  /** The newest message: its open calls can still be answered. */
  open: boolean;
  /** A turn is producing this message now. */
  live: boolean;
  /** Of another branch: nothing in it can be answered. */
  readOnly?: boolean;
  /** Its turn was stopped or failed: what ran in it has ended, and waits for nobody. */
  cut?: boolean;
};

export const MessageView = memo(
  function MessageView({ message, actions, open, live, readOnly = false, cut = false }: Props) {
    const last = message.parts.length - 1;
    const first = message.parts.findIndex(isSource);
    return message.parts.map((part, index) => {
      const now = live && index === last;
      switch (part.type) {
        case "text":
          if (!part.text) return null;
          return message.role === "user" ? (
            <Said key={index} text={part.text} />
          ) : (
            <Prose key={index} text={part.text} />
          );
        case "reasoning":
          return part.text ? <Reasoning key={index} text={part.text} live={now && part.state !== "done"} /> : null;
        case "file":
          return <FileView key={index} file={part} />;
        case "source-url":
        case "source-document":
          return index === first ? <Sources key={index} parts={message.parts} /> : null;
        case "step-start":
          return null;
        default:
          if (isToolUIPart(part)) {
            return (
              <Call
                key={part.toolCallId}
                part={part}
                message={message.id}
                actions={actions}
                open={open}
                live={live}
                readOnly={readOnly}
                cut={cut}
              />
            );
          }
          return part.type.startsWith("data-") ? (
            <details key={index} className="fold">
              <summary>{part.type.slice(5)}</summary>
              <pre tabIndex={0}>{pretty("data" in part ? part.data : part)}</pre>
            </details>
          ) : null;
      }
    });
  },
  // A message that grows is changed in place by the hook of a tab that only watches.
  (before, after) =>
    !after.live &&
    before.actions === after.actions &&
    before.open === after.open &&
    before.live === after.live &&
    before.readOnly === after.readOnly &&
    before.cut === after.cut &&
    before.message.id === after.message.id &&
    before.message.parts.length === after.message.parts.length &&
    before.message.parts.every((part, index) => part === after.message.parts[index]),
);

function Said({ text }: { text: string }) {
  const attached = attachedIn(text);
  return attached ? <AttachedChip {...attached} /> : <p className="said">{text}</p>;
}

/** A call, with the runs of children that it asked for. A tool that is a child is its run. */
function Call({ message, ...card }: CardProps & { message: string }) {
  const runs = useRunsOf(card.part.toolCallId, message);
  const [only] = runs;
  if (runs.length === 1 && only?.runId.startsWith("agent-tool:")) return <RunCard run={only} readOnly={card.readOnly} />;
  if (runs.length === 0) return <ToolCard {...card} />;
  return (
    <div className="runs" role="group" aria-label={`${getToolName(card.part)} and its runs`}>
      <ToolCard {...card} />
      {runs.map((run) => (
        <RunCard key={run.runId} run={run} readOnly={card.readOnly} />
      ))}
    </div>
  );
}

/** What is said in a message, without what is said of files that went along. */
export const textOf = (message: UIMessage): string =>
  message.parts
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .filter((text) => message.role !== "user" || !attachedIn(text))
    .join("\n\n");
