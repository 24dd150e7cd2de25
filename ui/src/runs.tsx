/** Runs of children, as cards in the conversation: what a child does, how long, and what it asks people. */

import { useAgentChat } from "@cloudflare/ai-chat/react";
import { useAgentToolEvents } from "agents/react";
import { getToolName, isToolUIPart, type UIMessage } from "ai";
import { createContext, useContext, useEffect, useId, useMemo, useRef, useState, type ReactNode } from "react";
import { useToolActions } from "./actions";
import { useConnection, type Connection } from "./connection";
import { Icon } from "./icons";
import { useFeed, type JournalFeed, type RunRow } from "./journal";
import { Prose } from "./markdown";
import { aboutOf, type Place } from "./places";
import { number, tookLong } from "./rows";
import { Tap, useTap } from "./tap";
import { Json, LABELS, Reasoning, ToolCard, type ToolPart } from "./tool-card";

type Part = UIMessage["parts"][number];
type Told = ReturnType<typeof useAgentToolEvents<Part>>;
export type Run = Told["unboundRuns"][number];

type Kept = {
  place: Place;
  tap: Tap;
  told: Told;
  rows: Map<string, RunRow>;
  feed: JournalFeed;
  onGo: (place: Place) => void;
};

const Runs = createContext<Kept | null>(null);
/** Which child waits for a person. Apart from the rest: it changes seldom, and much depends on it. */
const Waiting = createContext<string | null>(null);

type ProviderProps = {
  agent: Connection;
  place: Place;
  tap: Tap;
  feed: JournalFeed;
  onGo: (place: Place) => void;
  /** A run began, or ended. */
  onRuns: () => void;
  children: ReactNode;
};

/** Follows the runs of an agent. Only what reads them is drawn again with each of their pieces. */
export function RunsProvider({ agent, place, tap, feed, onGo, onRuns, children }: ProviderProps) {
  const told = useAgentToolEvents<Part>({ agent });
  const { journal } = useFeed(feed);
  const { rested } = useTap(tap);
  const rows = useMemo(() => new Map((journal?.runs ?? []).map((row) => [row.run_id, row])), [journal]);

  // Times and tokens are the journal's to say: it is read again when something of them may have changed.
  const all = Object.values(told.runsById);
  const stand = all.map((run) => `${run.status}${run.parts.length}`).join();
  useEffect(() => {
    if (all.length > 0) feed.refresh();
  }, [feed, stand, rested]);

  const which = all.map((run) => `${run.runId} ${run.status}`).join();
  useEffect(() => {
    if (which) onRuns();
  }, [which]);

  const asking = all.find((run) => waits(run, rows.get(run.runId)));
  const kept = { place, tap, told, rows, feed, onGo };
  return (
    <Waiting value={asking ? titleOf(asking) : null}>
      <Runs value={kept}>{children}</Runs>
    </Waiting>
  );
}

export const useWaiting = (): string | null => useContext(Waiting);

/** The runs that a call asked for, in their order. A provider may use the id of a call again, in another answer. */
export function useRunsOf(call: string, message: string): Run[] {
  const kept = useContext(Runs);
  const found = kept?.told.runsByToolCallId[call] ?? [];
  if (found.length < 2) return found;
  const elsewhere = (run: Run) => (kept?.rows.get(run.runId)?.answer_id ?? message) !== message;
  const here = found.filter((run) => !elsewhere(run));
  return here.length > 0 ? here : found;
}

/** Those that no call asked for: code did. */
export function OtherRuns() {
  const runs = useContext(Runs)?.told.unboundRuns ?? [];
  if (runs.length === 0) return null;
  return (
    <section className="other-runs" aria-label="Runs that no call asked for">
      {runs.map((run) => (
        <RunCard key={run.runId} run={run} />
      ))}
    </section>
  );
}

const titleOf = (run: Run): string => {
  const { name } = (run.display ?? {}) as { name?: unknown };
  return typeof name === "string" && name ? name : run.agentType;
};

const asks = (run: Run): boolean => run.parts.some((part) => isToolUIPart(part) && part.state === "approval-requested");

/** Whether a child can go on only when somebody has answered it. */
const waits = (run: Run, row: RunRow | undefined): boolean => run.status === "running" && (row ? row.is_waiting : asks(run));

const STATES: Record<Run["status"], [label: string, tone: string]> = {
  running: ["Running", ""],
  completed: ["Done", "good"],
  error: ["Failed", "bad"],
  aborted: ["Stopped", "wait"],
  interrupted: ["Interrupted", "wait"],
};

type CardProps = { run: Run; readOnly?: boolean };

export function RunCard({ run, readOnly = false }: CardProps) {
  const kept = useContext(Runs);
  const title = useId();
  const runs = run.status === "running";
  const row = kept?.rows.get(run.runId);
  const waiting = waits(run, row);
  const [label, tone] = waiting ? ["Waits for you", "wait"] : STATES[run.status];
  const seconds = useElapsed(row, kept?.feed.ahead ?? 0, runs);
  const tokens = row?.usage?.total_tokens ?? (row?.usage?.input_tokens ?? 0) + (row?.usage?.output_tokens ?? 0);
  const about = aboutOf(run.inputPreview);
  const [trouble, setTrouble] = useState<string | null>(null);
  const [stopping, setStopping] = useState(false);
  if (!kept) return null;
  const child: Place = { ...kept.place, sub: [...(kept.place.sub ?? []), { agent: kebab(run.agentType, row), name: run.runId }] };
  const stop = async () => {
    setStopping(true);
    setTrouble(await kept.feed.stopRun(run.runId));
    setStopping(false);
  };
  return (
    <section className={`tool run ${tone}`} aria-labelledby={title} data-run={run.runId} data-status={waiting ? "waiting" : run.status}>
      <header>
        <Icon name="agent" size={17} />
        <h3 id={title}>{titleOf(run)}</h3>
        <span className={`state ${tone}`}>
          {runs && !waiting && <span className="spinner" aria-hidden="true" />}
          {label}
        </span>
        {seconds !== null && <span className="took">{tookLong(seconds)}</span>}
      </header>
      {about && <p className="run-about">{about}</p>}
      {runs && run.progress && <Progress progress={run.progress} />}
      {run.milestones && run.milestones.length > 0 && (
        <p className="run-about">Reached: {run.milestones.map(({ name }) => name).join(", ")}</p>
      )}
      <Doings run={run} row={row} tokens={tokens} past={kept.tap.past.has(run.runId)} />
      {run.error && run.status !== "completed" && <p className="tool-error">{run.error}</p>}
      {runs && !readOnly && (waiting || asks(run)) && <Asked key={run.runId} place={child} />}
      {trouble && (
        <p className="tool-error" role="alert">
          {trouble}
        </p>
      )}
      <div className="run-tools">
        <button type="button" className="small" onClick={() => kept.onGo(child)} aria-label={`Open the conversation of ${titleOf(run)}`}>
          Open <Icon name="chevron" size={13} />
        </button>
        {runs && !readOnly && (
          <button type="button" className="small" disabled={stopping} onClick={() => void stop()} aria-label={`Stop ${titleOf(run)}`}>
            <Icon name="stop" size={13} /> Stop
          </button>
        )}
      </div>
    </section>
  );
}

/** How far the child says it is. */
function Progress({ progress: { fraction, phase, message } }: { progress: NonNullable<Run["progress"]> }) {
  return (
    <p className="run-progress">
      {fraction !== undefined && <progress value={fraction} aria-label="How far it is" />}
      {[phase, message].filter(Boolean).join(": ")}
    </p>
  );
}

const kebab = (cls: string, row: RunRow | undefined): string =>
  row?.kebab ?? cls.replace(/[A-Z]/g, (letter, at: number) => `${at ? "-" : ""}${letter.toLowerCase()}`);

/** Seconds from the beginning of a run, by the server's clock; counted on while it runs. */
function useElapsed(row: RunRow | undefined, ahead: number, runs: boolean): number | null {
  const [, tick] = useState(0);
  useEffect(() => {
    if (!runs) return;
    const timer = setInterval(() => tick((count) => count + 1), 500);
    return () => clearInterval(timer);
  }, [runs]);
  if (!row) return null;
  const until = row.ended_at ?? (runs ? Date.now() - ahead : null);
  return until === null ? null : Math.max(0, until - row.started_at) / 1000;
}

type DoingsProps = { run: Run; row: RunRow | undefined; tokens: number; past: boolean };

/** What the child thinks, says and calls: unfolded for who saw it work. */
function Doings({ run, row, tokens, past }: DoingsProps) {
  const over = run.status !== "running";
  const [chosen, choose] = useState<boolean | null>(null);
  const open = chosen ?? !(over && past);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const inside = box.current;
    if (inside && inside.scrollHeight - inside.scrollTop - inside.clientHeight < 60) inside.scrollTop = inside.scrollHeight;
  });
  const shown = run.parts.filter((part) => part.type !== "step-start" && !(part.type === "text" && !part.text));
  const steps = run.parts.filter((part) => part.type === "step-start").length;
  const calls = run.parts.filter(isToolUIPart).length;
  const words = [count(steps, "step"), count(calls, "call"), tokens ? `${number(tokens)} tokens` : ""].filter(Boolean);
  if (run.parts.length === 0) return null;
  return (
    <details className="fold" open={open}>
      <summary
        onClick={(event) => {
          event.preventDefault();
          choose(!open);
        }}
      >
        {words.join(" · ") || "At work"}
      </summary>
      {open && (
        <div className="run-parts" ref={box} tabIndex={0} role="group" aria-label={`What ${titleOf(run)} does`}>
          {shown.map((part, index) => (
            <Doing key={index} part={part} over={over} waiting={waits(run, row)} last={index === shown.length - 1} />
          ))}
        </div>
      )}
    </details>
  );
}

const count = (many: number, what: string): string => (many === 0 ? "" : many === 1 ? `1 ${what}` : `${many} ${what}s`);

type DoingProps = { part: Part; over: boolean; waiting: boolean; last: boolean };

function Doing({ part, over, waiting, last }: DoingProps) {
  if (part.type === "text") return <Prose text={part.text} />;
  if (part.type === "reasoning") return part.text ? <Reasoning text={part.text} live={!over && last && part.state !== "done"} /> : null;
  if (!isToolUIPart(part)) return null;
  const half = part.state === "output-available" && part.preliminary === true;
  const asked = part.state === "approval-requested" && !waiting;
  const label = asked ? "Asked you" : half && !over ? "Running" : LABELS[part.state];
  return (
    <details className="fold doing" data-tool={getToolName(part)} data-state={half ? "progress" : part.state}>
      <summary>
        <Icon name="tool" size={14} />
        <code>{getToolName(part)}</code> {label}
        {half && typeof part.output === "string" && <span className="quiet">{part.output}</span>}
      </summary>
      {part.input !== undefined && <Json value={part.input} what="input" />}
      {part.state === "output-available" && <Json value={part.output} what="output" />}
      {part.state === "output-error" && <p className="tool-error">{part.errorText}</p>}
    </details>
  );
}

const NONE: ReadonlySet<string> = new Set();
const UNKNOWN = new Map<string, number>();

/** What a child asks a person: read from its own conversation, and answered there. */
function Asked({ place }: { place: Place }) {
  const [tap] = useState(() => new Tap());
  const agent = useConnection(place, tap);
  // Its socket begins with the conversation. One that was asked for apart could be older than what the socket tells next.
  const chat = useAgentChat({ agent, getInitialMessages: null, syncMessagesToServer: false });
  useTap(tap);
  const actions = useToolActions(chat, agent, tap, NONE, UNKNOWN);
  const busy = chat.status === "submitted" || chat.status === "streaming" || chat.isStreaming;
  // When it is met in the middle of an answer, the question before that is told last.
  const answer = chat.messages.findLast((message) => message.role === "assistant");
  const open = (answer?.parts ?? []).filter(
    (part): part is ToolPart =>
      isToolUIPart(part) && (part.state === "approval-requested" || (part.state === "input-available" && !busy)),
  );
  return open.map((part) => <ToolCard key={part.toolCallId} part={part} actions={actions} open live={busy} readOnly={false} />);
}
