/** The inspector's panels that read the journal: turns, calls, chunks. */

import { useEffect, useMemo, useState, type ReactNode } from "react";
import type { CallRow, JournalChunk, JournalFeed, Step, TurnRow, Usage } from "./journal";
import { clock, Fact, number, State, took, Value } from "./rows";
import type { Chunk, Tap, Turn } from "./tap";

/** What a panel says when it has nothing to show, or is not allowed to know. */
export function Nothing({ feed, children }: { feed: JournalFeed; children: ReactNode }) {
  if (feed.status === "loading") return <p className="quiet">Reading the journal…</p>;
  if (feed.status === "absent") return <p className="quiet">{feed.reason}</p>;
  return <p className="quiet">{children}</p>;
}

// --- turns

export function TurnsPanel({ feed, onChunks }: { feed: JournalFeed; onChunks: (turn: string) => void }) {
  const turns = feed.journal?.turns ?? [];
  if (turns.length === 0) return <Nothing feed={feed}>No turn yet. Every answer is one.</Nothing>;
  return (
    <ol className="entries" aria-label="Turns, newest first">
      {turns.map((turn) => (
        <li key={turn.id} data-turn={turn.id} data-status={turn.status}>
          <details>
            <summary>
              <span className="first">
                <span className="name">{turn.trigger}</span>
                <State state={turn.status} />
                <time className="when">{clock(turn.created_at)}</time>
              </span>
              <span className="second">{summaryOf(turn)}</span>
            </summary>
            {turn.error && <p className="tool-error">{turn.error}</p>}
            {turn.steps && turn.steps.length > 0 && <Steps steps={turn.steps} />}
            <dl className="facts">
              <Fact name="Turn">{turn.id}</Fact>
              <Fact name="Request">{turn.request_id}</Fact>
              {turn.message_id && <Fact name="Message">{turn.message_id}</Fact>}
              {turn.started_at !== null && <Fact name="Waited">{took((turn.started_at - turn.created_at) / 1000)}</Fact>}
            </dl>
            <button type="button" className="small" onClick={() => onChunks(turn.id)}>
              Show its chunks
            </button>
          </details>
        </li>
      ))}
    </ol>
  );
}

function summaryOf(turn: TurnRow): string {
  const words: string[] = [];
  if (turn.steps) words.push(turn.steps.length === 1 ? "1 step" : `${turn.steps.length} steps`);
  if (turn.started_at !== null && turn.ended_at !== null) words.push(took((turn.ended_at - turn.started_at) / 1000));
  if (turn.usage) words.push(tokens(turn.usage));
  else if (turn.steps === null && turn.started_at !== null) words.push("tokens counted by an earlier process");
  return words.join(" · ");
}

export function tokens({ input_tokens, cached_input_tokens, output_tokens }: Usage): string {
  const words: string[] = [];
  if (input_tokens !== undefined) {
    words.push(`${number(input_tokens)} in${cached_input_tokens ? ` (${number(cached_input_tokens)} cached)` : ""}`);
  }
  if (output_tokens !== undefined) words.push(`${number(output_tokens)} out`);
  return words.join(" · ");
}

function Steps({ steps }: { steps: Step[] }) {
  const count = (value: number | undefined) => (value === undefined ? "–" : number(value));
  return (
    <div className="scroll-x" tabIndex={0} role="region" aria-label="Steps">
      <table className="steps">
        <thead>
          <tr>
            <th scope="col">Step</th>
            <th scope="col">Ended with</th>
            <th scope="col">Took</th>
            <th scope="col">In</th>
            <th scope="col">Cached</th>
            <th scope="col">Out</th>
          </tr>
        </thead>
        <tbody>
          {steps.map((step) => (
            <tr key={step.number}>
              <th scope="row" title={step.model}>
                {step.number + 1}
              </th>
              <td>{step.finish_reason ?? "running"}</td>
              <td>{step.duration_ms === undefined ? "–" : took(step.duration_ms / 1000)}</td>
              <td>{count(step.usage?.input_tokens)}</td>
              <td>{count(step.usage?.cached_input_tokens)}</td>
              <td>{count(step.usage?.output_tokens)}</td>
            </tr>
          ))}
        </tbody>
        <caption className="quiet">{[...new Set(steps.map((step) => step.model))].join(", ")}</caption>
      </table>
    </div>
  );
}

// --- calls

const MEANINGS: Record<string, string> = {
  asked: "The model asked for it; nothing has run.",
  started: "It runs, or ran when the process ended.",
  unknown: "The turn stopped while it ran: nobody knows how it ended.",
};

export function CallsPanel({ feed }: { feed: JournalFeed }) {
  const calls = feed.journal?.calls ?? [];
  if (calls.length === 0) return <Nothing feed={feed}>No tool was called yet.</Nothing>;
  return (
    <ol className="entries" aria-label="Calls, newest first">
      {calls.map((call) => (
        <li key={`${call.turn} ${call.call_id}`} data-call={call.call_id} data-state={call.state}>
          <details>
            <summary>
              <span className="first">
                <span className="name">{call.tool}</span>
                <State state={call.state} />
                <time className="when">{clock(call.asked_at)}</time>
              </span>
              <span className="second">{callSummary(call, calls)}</span>
            </summary>
            {MEANINGS[call.state] && <p className="quiet">{MEANINGS[call.state]}</p>}
            {call.input !== null && <Value name="Input" value={call.input} />}
            {call.output !== undefined && <Value name="Output" value={call.output} />}
            {call.error !== undefined && <Value name="Error" value={call.error} />}
            <dl className="facts">
              <Fact name="Call">{call.call_id}</Fact>
              <Fact name="Turn">{call.turn}</Fact>
              <Fact name="When interrupted">{call.on_interrupt}</Fact>
            </dl>
          </details>
        </li>
      ))}
    </ol>
  );
}

function callSummary(call: CallRow, all: CallRow[]): string {
  const words = [`step ${call.step + 1}`];
  if (call.started_at !== null && call.settled_at !== null) words.push(took((call.settled_at - call.started_at) / 1000));
  const elsewhere = all.some((one) => one.call_id === call.call_id && one.turn !== call.turn && one.started_at !== null);
  if (call.started_at === null && elsewhere) words.push("asked here, ran in a later turn");
  const input = typeof call.input === "string" ? call.input : JSON.stringify(call.input ?? {});
  if (input !== "{}") words.push(input);
  return words.join(" · ");
}

// --- chunks

type ChunksProps = { feed: JournalFeed; tap: Tap; picked: string | null; onPick: (turn: string) => void };

export function ChunksPanel({ feed, tap, picked, onPick }: ChunksProps) {
  const turns = feed.journal?.turns ?? tap.turns.toReversed().map(tapped);
  const turn = turns.find((one) => one.id === picked) ?? turns[0];
  const seen = tap.turns.find((one) => one.id === turn?.request_id);
  const stored = useChunks(feed, turn);
  const began = turn?.started_at ?? null;
  const rows = useMemo(() => folded(stored, seen, began), [stored, seen, seen?.chunks.length, began]);
  if (!turn) return <Nothing feed={feed}>Nothing yet. Send a message and watch it arrive, chunk by chunk.</Nothing>;
  const chunks = rows.reduce((sum, row) => sum + row.chunks.length, 0);
  const commits = new Set(stored.map((one) => one.commit)).size;
  return (
    <>
      <label className="pick">
        Turn
        <select value={turn.id} onChange={(event) => onPick(event.target.value)}>
          {turns.map((one) => (
            <option key={one.id} value={one.id}>
              {clock(one.created_at)} · {one.trigger} · {one.status}
            </option>
          ))}
        </select>
      </label>
      <dl className="facts">
        <Fact name="Status">{turn.status}</Fact>
        <Fact name="Chunks">{number(chunks)}</Fact>
        {commits > 0 && <Fact name="Commits">{number(commits)}</Fact>}
      </dl>
      {chunks === 0 && turn.ended_at !== null && (
        <p className="quiet">None left. A while after a turn has ended its message is the truth, and its chunks are dropped.</p>
      )}
      <ol className="chunks">
        {rows.map((row) => (
          <li key={row.key} className={row.opens ? "opens" : ""}>
            <details>
              <summary>
                <span className="seq">{row.seq}</span>
                <span className="type">{row.type}</span>
                <span className="hint">{row.hint}</span>
                {row.when && <span className="when">{row.when}</span>}
              </summary>
              <pre tabIndex={0}>{row.chunks.map((chunk) => JSON.stringify(chunk)).join("\n")}</pre>
            </details>
          </li>
        ))}
      </ol>
      {commits > 1 && <p className="quiet legend">A line above a number: a commit began here. Nothing is shown before it is stored.</p>}
    </>
  );
}

/** The chunks of a turn as the journal has them; read again whenever the journal was. */
function useChunks(feed: JournalFeed, turn: TurnRow | undefined): JournalChunk[] {
  const [found, setFound] = useState<{ turn: string; chunks: JournalChunk[] }>({ turn: "", chunks: [] });
  const id = feed.status === "ready" ? turn?.id : undefined;
  // An ended turn does not change any more.
  const look = turn?.ended_at === null ? feed.looked : turn?.ended_at;
  useEffect(() => {
    if (!id) return;
    let late = false;
    void feed.chunks(id).then((chunks) => !late && setFound({ turn: id, chunks }));
    return () => {
      late = true;
    };
  }, [feed, id, look]);
  return found.turn === id ? found.chunks : [];
}

/** A turn that only the socket told us about. */
const tapped = (turn: Turn): TurnRow => ({
  id: turn.id,
  request_id: turn.id,
  trigger: turn.continuation ? "continuation" : "chat",
  status: turn.outcome ?? "running",
  continuation: turn.continuation,
  message_id: null,
  error: turn.error,
  created_at: Math.round(performance.timeOrigin + turn.startedAt),
  started_at: null,
  ended_at: turn.endedAt,
  steps: null,
  usage: null,
});

type Row = { key: number; seq: string; type: string; hint: string; when: string; opens: boolean; chunks: Chunk[] };

/** Chunks in order of their sequence, runs of deltas in one row. What the socket brought since is added. */
function folded(stored: JournalChunk[], seen: Turn | undefined, began: number | null): Row[] {
  const all = new Map<number, { chunk: Chunk; at: number | null; opens: boolean }>();
  for (const { seq, chunk } of seen?.chunks ?? []) {
    if (seq !== null) all.set(seq, { chunk, at: null, opens: false });
  }
  for (const { seq, commit, written_at, chunk } of stored) {
    all.set(seq, { chunk, at: written_at, opens: seq === commit && seq > 0 });
  }
  const rows: (Row & { id: unknown; from: number })[] = [];
  for (const [seq, { chunk, at, opens }] of [...all].toSorted(([a], [b]) => a - b)) {
    const last = rows.at(-1);
    const id = chunk.id ?? chunk.toolCallId;
    const text = String(chunk.delta ?? chunk.inputTextDelta ?? chunk.toolName ?? chunk.finishReason ?? "");
    if (last && chunk.type.endsWith("-delta") && last.type === chunk.type && last.id === id) {
      last.chunks.push(chunk);
      last.seq = `${last.from}–${seq}`;
      if (last.hint.length < 200) last.hint += text;
      continue;
    }
    const when = at === null || began === null ? "" : `+${took((at - began) / 1000).replace("<1 ms", "0 ms")}`;
    rows.push({ key: seq, seq: String(seq), from: seq, type: chunk.type, id, hint: text, when, opens, chunks: [chunk] });
  }
  return rows;
}
