/** One message, part by part. */

import { getToolName, isToolUIPart, type DynamicToolUIPart, type ToolUIPart, type UIMessage } from "ai";
import { memo, useId, useState } from "react";
import { Icon } from "./icons";
import { CopyButton, pretty, Prose } from "./markdown";
import { Answered, outcome, questionOf, QuestionForm } from "./question";
import { FileView, isSource, Sources } from "./sources";

export type ToolPart = ToolUIPart | DynamicToolUIPart;

export type ToolActions = {
  approve: (approvalId: string, approved: boolean) => void;
  answer: (toolCallId: string, toolName: string, output: unknown) => void;
  /** Answer what a tool asks. */
  reply: (toolCallId: string, toolName: string, output: unknown) => void;
  /** How often the server has shown that a call waits for a person. */
  shown: (toolCallId: string) => number;
  /** What was answered under an approval, when the part itself does not say. */
  answered: (approvalId: string) => unknown;
  /** Tools this page answers by itself. */
  own: ReadonlySet<string>;
  duration: (toolCallId: string) => number | undefined;
};

type Props = {
  message: UIMessage;
  actions: ToolActions;
  /** The newest message: its open calls can still be answered. */
  open: boolean;
  /** A turn is producing this message now. */
  live: boolean;
  /** Of another branch: nothing in it can be answered. */
  readOnly?: boolean;
};

export const MessageView = memo(
  function MessageView({ message, actions, open, live, readOnly = false }: Props) {
    const last = message.parts.length - 1;
    const first = message.parts.findIndex(isSource);
    return message.parts.map((part, index) => {
      const now = live && index === last;
      switch (part.type) {
        case "text":
          if (!part.text) return null;
          return message.role === "user" ? (
            <p key={index} className="said">
              {part.text}
            </p>
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
              <ToolCard key={part.toolCallId} part={part} actions={actions} open={open} live={live} readOnly={readOnly} />
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
    before.message.id === after.message.id &&
    before.message.parts.length === after.message.parts.length &&
    before.message.parts.every((part, index) => part === after.message.parts[index]),
);

function Reasoning({ text, live }: { text: string; live: boolean }) {
  return (
    <details className="fold reasoning">
      <summary>
        <Icon name="thought" size={16} />
        <span>{live ? "Thinking…" : "Thoughts"}</span>
      </summary>
      <Prose text={text} />
    </details>
  );
}

const LABELS: Record<ToolPart["state"], string> = {
  "input-streaming": "Preparing",
  "input-available": "Running",
  "approval-requested": "Needs your approval",
  "approval-responded": "Approved",
  "output-available": "Done",
  "output-error": "Failed",
  "output-denied": "Denied",
};

const TONES: Partial<Record<ToolPart["state"], string>> = {
  "approval-requested": "wait",
  "output-available": "good",
  "output-error": "bad",
  "output-denied": "bad",
};

type CardProps = { part: ToolPart; actions: ToolActions; open: boolean; live: boolean; readOnly: boolean };

function ToolCard({ part, actions, open, live, readOnly }: CardProps) {
  const title = useId();
  const name = getToolName(part);
  const question = questionOf(part, actions.answered);
  const asks = part.state === "approval-requested";
  const waits = part.state === "input-available" && open && !live;
  const byHand = waits && !actions.own.has(name);
  // A tool that tells how far it is has an output before it is done.
  const half = part.state === "output-available" && part.preliminary === true;
  const left = half ? !live : readOnly && ["input-streaming", "input-available", "approval-requested"].includes(part.state);
  const running = !waits && !left && (half || part.state === "input-streaming" || part.state === "input-available");
  const denied = part.state === "approval-responded" && part.approval.approved === false;
  const asked = question && (asks ? "Asks you" : part.state === "approval-responded" ? outcome(question) : null);
  const label = left ? (half ? "Was not finished" : "Was not answered") : half ? "Running" : denied ? "Denied" : waits ? (byHand ? "Waiting for an answer" : "Running in your browser") : (asked ?? LABELS[part.state]);
  const tone = denied ? "bad" : half ? (left ? "bad" : "") : byHand ? "wait" : (TONES[part.state] ?? "");
  const seconds = actions.duration(part.toolCallId);
  const input = part.input;
  const empty = typeof input === "object" && input !== null && Object.keys(input).length === 0;
  const failed = part.state === "output-error";
  return (
    <section className={`tool ${tone}`} aria-labelledby={title} data-tool={name} data-state={half ? "progress" : part.state}>
      <header>
        <Icon name="tool" size={16} />
        <h3 id={title}>{name}</h3>
        <span className={`state ${tone}`}>
          {running && <span className="spinner" aria-hidden="true" />}
          {label}
        </span>
        {seconds !== undefined && <span className="took">{took(seconds)}</span>}
      </header>
      {input !== undefined && !empty && (
        <details className="fold" open={asks && !question}>
          <summary>Input</summary>
          <Json value={input} what="input" />
        </details>
      )}
      {question && !asks && <Answered question={question} />}
      {part.state === "output-available" && (
        <details className="fold" open={short(part.output)}>
          <summary>{half ? "Progress" : "Output"}</summary>
          <Json value={part.output} what="output" />
        </details>
      )}
      {failed && <p className="tool-error">{part.errorText}</p>}
      {asks && question && !readOnly && (
        <QuestionForm
          key={question.id}
          question={question}
          tool={name}
          shown={() => actions.shown(part.toolCallId)}
          onAnswer={(output) => actions.reply(part.toolCallId, name, output)}
        />
      )}
      {asks && !question && !readOnly && (
        <div className="answer" role="group" aria-label={`Approve ${name}?`}>
          <button type="button" className="primary" onClick={() => actions.approve(part.approval.id, true)}>
            Approve
          </button>
          <button type="button" onClick={() => actions.approve(part.approval.id, false)}>
            Deny
          </button>
        </div>
      )}
      {byHand && <ByHand onAnswer={(output) => actions.answer(part.toolCallId, name, output)} />}
    </section>
  );
}

/** The agent asked for a tool of some client that is not this page. */
function ByHand({ onAnswer }: { onAnswer: (output: unknown) => void }) {
  const [text, setText] = useState("");
  const send = () => {
    try {
      onAnswer(JSON.parse(text));
    } catch {
      onAnswer(text);
    }
  };
  return (
    <div className="by-hand">
      <label>
        This page does not have the tool. Answer for it (JSON or text)
        <textarea rows={2} value={text} onChange={(event) => setText(event.target.value)} />
      </label>
      <button type="button" disabled={!text.trim()} onClick={send}>
        Answer
      </button>
    </div>
  );
}

function Json({ value, what }: { value: unknown; what: string }) {
  const text = pretty(value);
  return (
    <div className="json">
      <pre tabIndex={0}>{text}</pre>
      <CopyButton label={`Copy ${what}`} text={() => text} />
    </div>
  );
}

const short = (value: unknown): boolean => pretty(value).split("\n").length <= 8;

export const took = (seconds: number): string =>
  seconds < 0.001 ? "<1 ms" : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;

export const textOf = (message: UIMessage): string =>
  message.parts
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("\n\n");
