/** A tool call as a card: what went in, how it stands, what it asks a person, what came out. */

import { getToolName, type DynamicToolUIPart, type ToolUIPart } from "ai";
import { useId, useState } from "react";
import { CODE_CARDS } from "./code-cards";
import { Icon } from "./icons";
import { shownOf } from "./known-cards";
import { CopyButton, pretty, Prose } from "./markdown";
import { Answered, outcome, questionOf, QuestionForm } from "./question";
import { took } from "./rows";

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

export function Reasoning({ text, live }: { text: string; live: boolean }) {
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

export const LABELS: Record<ToolPart["state"], string> = {
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

export type CardProps = { part: ToolPart; actions: ToolActions; open: boolean; live: boolean; readOnly: boolean; cut?: boolean };

export function ToolCard({ part, actions, open, live, readOnly, cut = false }: CardProps) {
  const title = useId();
  const name = getToolName(part);
  const question = questionOf(part, actions.answered);
  const asks = part.state === "approval-requested";
  const begun = part.state === "input-streaming" || part.state === "input-available";
  const ended = cut && begun;
  const waits = part.state === "input-available" && open && !live && !ended;
  const byHand = waits && !actions.own.has(name);
  // A tool that tells how far it is has an output before it is done.
  const half = part.state === "output-available" && part.preliminary === true;
  const left = half ? !live : readOnly && (begun || asks);
  const running = !waits && !left && !ended && (half || begun);
  const denied = part.state === "approval-responded" && part.approval.approved === false;
  const asked = question && (asks ? "Asks you" : part.state === "approval-responded" ? outcome(question) : null);
  const shown = question && !Object.hasOwn(CODE_CARDS, name) ? null : shownOf(part);
  const label = shown?.failed ? LABELS["output-error"] : ended ? "Was not finished" : left ? (half ? "Was not finished" : "Was not answered") : half ? "Running" : denied ? "Denied" : waits ? (byHand ? "Waiting for an answer" : "Running in your browser") : (asked ?? LABELS[part.state]);
  const tone = denied || ended || shown?.failed ? "bad" : half ? (left ? "bad" : "") : byHand ? "wait" : (TONES[part.state] ?? "");
  const seconds = actions.duration(part.toolCallId);
  const input = part.input;
  const empty = typeof input === "object" && input !== null && Object.keys(input).length === 0;
  const failed = part.state === "output-error";
  return (
    <section className={`tool ${tone}`} aria-labelledby={title} data-tool={name} data-state={half ? "progress" : part.state}>
      <header>
        <Icon name="tool" size={16} />
        <h3 id={title}>{name}</h3>
        {shown?.title && <span className="about">{shown.title}</span>}
        <span className={`state ${tone}`}>
          {running && <span className="spinner" aria-hidden="true" />}
          {label}
        </span>
        {seconds !== undefined && <span className="took">{took(seconds)}</span>}
      </header>
      {shown?.body}
      {input !== undefined && !empty && !shown?.body && (
        <details className="fold" open={asks && !question && !shown}>
          <summary>Input</summary>
          <Json value={input} what="input" />
        </details>
      )}
      {question && !asks && <Answered question={question} />}
      {part.state === "output-available" && !shown && (
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

export function Json({ value, what }: { value: unknown; what: string }) {
  const text = pretty(value);
  return (
    <div className="json">
      <pre tabIndex={0}>{text}</pre>
      <CopyButton label={`Copy ${what}`} text={() => text} />
    </div>
  );
}

const short = (value: unknown): boolean => pretty(value).split("\n").length <= 8;
