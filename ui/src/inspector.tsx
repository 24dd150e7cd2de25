/** What happens underneath: frames, the chunks of a turn, what it cost. */

import type { UIMessage } from "ai";
import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { Icon } from "./icons";
import { pretty } from "./markdown";
import { took } from "./parts";
import { useTap, usageOf, type Chunk, type Frame, type Tap, type Turn } from "./tap";

type Props = { tap: Tap; messages: UIMessage[]; state: unknown; onClose: () => void };

const TABS = ["Turn", "Frames", "State"] as const; // the journal comes here
type Tab = (typeof TABS)[number];

export function Inspector({ tap, messages, state, onClose }: Props) {
  const [tab, setTab] = useState<Tab>("Turn");
  const id = useId();
  useTap(tap);
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const next = TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length] ?? "Turn";
    setTab(next);
    document.getElementById(`${id}-${next}`)?.focus();
  };
  return (
    <aside className="inspector" aria-label="Inspector">
      <header className="bar">
        <div role="tablist" aria-label="Inspector" className="tabs" onKeyDown={move}>
          {TABS.map((one) => (
            <button
              key={one}
              id={`${id}-${one}`}
              type="button"
              role="tab"
              aria-selected={one === tab}
              aria-controls={`${id}-panel`}
              tabIndex={one === tab ? 0 : -1}
              onClick={() => setTab(one)}
            >
              {one}
            </button>
          ))}
        </div>
        <button type="button" className="ghost" aria-label="Clear the inspector" title="Clear" onClick={() => tap.clear()}>
          <Icon name="bin" />
        </button>
        <button type="button" className="ghost" aria-label="Close the inspector" title="Close" onClick={onClose}>
          <Icon name="close" />
        </button>
      </header>
      <div id={`${id}-panel`} role="tabpanel" aria-labelledby={`${id}-${tab}`} className="panel">
        {tab === "Turn" && <TurnPanel turns={tap.turns} messages={messages} />}
        {tab === "Frames" && <FramePanel frames={tap.frames} />}
        {tab === "State" && <pre className="raw">{state === undefined ? "No state." : pretty(state)}</pre>}
      </div>
    </aside>
  );
}

function TurnPanel({ turns, messages }: { turns: Turn[]; messages: UIMessage[] }) {
  const [picked, setPicked] = useState<string | null>(null);
  const turn = turns.find((one) => one.id === picked) ?? turns.at(-1);
  const rows = useMemo(() => (turn ? folded(turn) : []), [turn, turn?.chunks.length]);
  if (!turn) return <p className="quiet">Nothing yet. Send a message and watch it arrive, chunk by chunk.</p>;
  const ids = turn.chunks.map(({ chunk }) => chunk.messageId);
  const stored = messages.find((message) => ids.includes(message.id));
  const usage = turn.usage ?? usageOf(stored?.metadata);
  const ended = turn.endedAt ?? performance.now();
  const replayed = turn.chunks.filter((one) => one.replay).length;
  return (
    <>
      <label className="pick">
        Turn
        <select value={turn.id} onChange={(event) => setPicked(event.target.value)}>
          {turns.toReversed().map((one) => (
            <option key={one.id} value={one.id}>
              {one.id.slice(0, 12)} · {one.outcome ?? "running"}
              {one.continuation ? " · continuation" : ""}
            </option>
          ))}
        </select>
      </label>
      <dl className="facts">
        <Fact name="Outcome">{turn.outcome ?? "running"}</Fact>
        <Fact name="Took">{took((ended - turn.startedAt) / 1000)}</Fact>
        <Fact name="Chunks">
          {turn.chunks.length}
          {replayed > 0 && ` (${replayed} replayed)`}
        </Fact>
        {usage &&
          Object.entries(usage).map(([name, count]) => (
            <Fact key={name} name={words(name)}>
              {count.toLocaleString("en")}
            </Fact>
          ))}
      </dl>
      {turn.error && <p className="tool-error">{turn.error}</p>}
      <ol className="chunks">
        {rows.map((row) => (
          <li key={row.key}>
            <details>
              <summary>
                <span className="seq">{row.seq}</span>
                <span className="type">{row.type}</span>
                <span className="hint">{row.hint}</span>
                <span className="when">{row.when}</span>
              </summary>
              <pre tabIndex={0}>{row.chunks.map((chunk) => JSON.stringify(chunk)).join("\n")}</pre>
            </details>
          </li>
        ))}
      </ol>
    </>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

type Row = { key: number; seq: string; type: string; hint: string; when: string; chunks: Chunk[] };

/** Chunks in order of their sequence, runs of deltas in one row. */
function folded(turn: Turn): Row[] {
  const rows: (Row & { id: unknown; from: number | null })[] = [];
  const sorted = turn.chunks.toSorted((a, b) => (a.seq ?? Infinity) - (b.seq ?? Infinity));
  for (const { seq, at, chunk } of sorted) {
    const last = rows.at(-1);
    const id = chunk.id ?? chunk.toolCallId;
    const text = String(chunk.delta ?? chunk.inputTextDelta ?? chunk.toolName ?? chunk.finishReason ?? "");
    if (last && chunk.type.endsWith("-delta") && last.type === chunk.type && last.id === id) {
      last.chunks.push(chunk);
      last.seq = last.from === null ? "–" : `${last.from}–${seq}`;
      if (last.hint.length < 200) last.hint += text;
      continue;
    }
    const when = `+${took((at - turn.startedAt) / 1000).replace("<1 ms", "0 ms")}`;
    const label = seq === null ? "–" : String(seq);
    rows.push({ key: rows.length, seq: label, from: seq, type: chunk.type, id, hint: text, when, chunks: [chunk] });
  }
  return rows;
}

const ARROWS = { in: "↓", out: "↑", socket: "•" } as const;
const WAYS = { in: "received", out: "sent", socket: "socket" } as const;
const SHOWN = 300;

function FramePanel({ frames }: { frames: Frame[] }) {
  const [filter, setFilter] = useState("");
  const end = useRef<HTMLDivElement>(null);
  const wanted = filter.trim().toLowerCase();
  const matching = wanted ? frames.filter((one) => `${one.type} ${one.hint}`.toLowerCase().includes(wanted)) : frames;
  const shown = matching.slice(-SHOWN);
  const newest = shown.at(-1)?.n;
  useEffect(() => {
    const panel = end.current?.closest(".panel");
    if (panel && panel.scrollHeight - panel.scrollTop - panel.clientHeight < 120) panel.scrollTop = panel.scrollHeight;
  }, [newest]);
  return (
    <>
      <label className="pick">
        Filter
        <input type="search" value={filter} placeholder="response, tool, rpc…" onChange={(e) => setFilter(e.target.value)} />
      </label>
      {matching.length > SHOWN && <p className="quiet">The newest {SHOWN} of {matching.length}.</p>}
      <ol className="frames">
        {shown.map((frame) => (
          <li key={frame.n} className={frame.way}>
            <details>
              <summary>
                <span className="way" role="img" aria-label={WAYS[frame.way]}>
                  {ARROWS[frame.way]}
                </span>
                <span className="type">{frame.type}</span>
                <span className="hint">{frame.hint}</span>
                <time className="when">{clock(frame.at)}</time>
              </summary>
              {frame.text && <pre tabIndex={0}>{unfold(frame.text)}</pre>}
            </details>
          </li>
        ))}
      </ol>
      <div ref={end} />
    </>
  );
}

function unfold(text: string): string {
  try {
    return pretty(JSON.parse(text));
  } catch {
    return text;
  }
}

const clock = (at: number): string => new Date(at).toISOString().slice(14, 23);

const words = (name: string): string =>
  name.replace(/([A-Z])/g, (letter) => ` ${letter.toLowerCase()}`).replace(/^./, (letter) => letter.toUpperCase());
