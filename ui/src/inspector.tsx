/** What happens underneath: the journal as the server keeps it, events and frames as they pass. */

import { useEffect, useId, useState, type KeyboardEvent } from "react";
import { DeliveriesPanel } from "./deliveries-panel";
import { ExtensionsPanel } from "./extensions-panel";
import { Icon } from "./icons";
import { FamilyPanel } from "./family-panel";
import { FilesPanel } from "./files-panel";
import { useFeed, type Happening, type JournalFeed } from "./journal";
import { pretty } from "./markdown";
import { MemoryPanel } from "./memory-panel";
import { CallsPanel, ChunksPanel, TurnsPanel } from "./panels";
import type { Place } from "./places";
import { clock, exactly, useTail } from "./rows";
import type { MCPServersState } from "./servers";
import { ServersPanel } from "./servers-panel";
import { SkillsPanel } from "./skills-panel";
import { useTap, type Frame, type Tap } from "./tap";

export const TABS = ["turns", "calls", "files", "family", "memory", "skills", "extensions", "servers", "deliveries", "chunks", "events", "frames", "state"] as const;
export type Tab = (typeof TABS)[number];

type Props = {
  tap: Tap;
  feed: JournalFeed;
  state: unknown;
  servers: MCPServersState | null;
  tab: Tab;
  place: Place;
  onTab: (tab: Tab) => void;
  onGo: (place: Place) => void;
  onClose: () => void;
};

export function Inspector({ tap, feed, state, servers, tab, place, onTab, onGo, onClose }: Props) {
  const id = useId();
  const [turn, setTurn] = useState<string | null>(null);
  useTap(tap);
  useFeed(feed);
  useEffect(() => feed.watch(), [feed]);
  // Over the conversation the inspector takes the focus, and gives it back.
  useEffect(() => {
    if (!matchMedia("(max-width: 899px)").matches) return;
    document.getElementById(`${id}-${tab}`)?.focus();
    return () => document.querySelector<HTMLElement>('.chat .bar [aria-label="Inspector"]')?.focus();
  }, []);
  useEffect(() => {
    document.getElementById(`${id}-${tab}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [tab]);
  const move = (event: KeyboardEvent) => {
    const at = TABS.indexOf(tab);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = TABS[(to + TABS.length) % TABS.length] ?? "turns";
    onTab(next);
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
              onClick={() => onTab(one)}
            >
              {one.replace(/^./, (letter) => letter.toUpperCase())}
            </button>
          ))}
        </div>
        <button type="button" className="ghost" aria-label="Close the inspector" title="Close" onClick={onClose}>
          <Icon name="close" />
        </button>
      </header>
      <div id={`${id}-panel`} role="tabpanel" aria-labelledby={`${id}-${tab}`} className="panel" tabIndex={0}>
        {tab === "turns" && (
          <TurnsPanel
            feed={feed}
            onChunks={(chosen) => {
              setTurn(chosen);
              onTab("chunks");
            }}
          />
        )}
        {tab === "calls" && <CallsPanel feed={feed} />}
        {tab === "files" && <FilesPanel feed={feed} />}
        {tab === "family" && <FamilyPanel feed={feed} place={place} onGo={onGo} />}
        {tab === "memory" && <MemoryPanel feed={feed} />}
        {tab === "skills" && <SkillsPanel feed={feed} />}
        {tab === "extensions" && <ExtensionsPanel feed={feed} />}
        {tab === "servers" && <ServersPanel feed={feed} told={servers} />}
        {tab === "deliveries" && <DeliveriesPanel feed={feed} />}
        {tab === "chunks" && <ChunksPanel feed={feed} tap={tap} picked={turn} onPick={setTurn} />}
        {tab === "events" && <EventsPanel feed={feed} />}
        {tab === "frames" && <FramesPanel frames={tap.frames} onClear={() => tap.clear()} />}
        {tab === "state" && <pre className="raw">{state === undefined ? "No state." : pretty(state)}</pre>}
      </div>
    </aside>
  );
}

const SHOWN = 300;

type FilterProps = { value: string; example: string; onChange: (text: string) => void; onClear: () => void; what: string };

function Filter({ value, example, onChange, onClear, what }: FilterProps) {
  return (
    <div className="pick">
      <label>
        Filter
        <input type="search" value={value} placeholder={example} onChange={(event) => onChange(event.target.value)} />
      </label>
      <button type="button" className="ghost small" aria-label={`Clear the ${what}`} title={`Clear the ${what}`} onClick={onClear}>
        <Icon name="bin" size={16} />
      </button>
    </div>
  );
}

/** The rows that match, and a word about those that are left out. */
function newest<T>(rows: T[], filter: string, text: (row: T) => string): [shown: T[], more: string] {
  const wanted = filter.trim().toLowerCase();
  const matching = wanted ? rows.filter((row) => text(row).toLowerCase().includes(wanted)) : rows;
  return [matching.slice(-SHOWN), matching.length > SHOWN ? `The newest ${SHOWN} of ${matching.length}.` : ""];
}

function EventsPanel({ feed }: { feed: JournalFeed }) {
  const [filter, setFilter] = useState("");
  const [shown, more] = newest(feed.events, filter, (event) => `${event.type} ${hintOf(event)}`);
  const end = useTail(shown.at(-1)?.id);
  if (feed.status === "absent") return <p className="quiet">{feed.reason}</p>;
  return (
    <>
      <Filter
        value={filter}
        example="chat:turn, tool, error…"
        what="events"
        onChange={setFilter}
        onClear={() => feed.clearEvents()}
      />
      <p className="live" role="status">
        <span className={`dot ${feed.line === "open" ? "good" : "wait"}`} aria-hidden="true" />
        {feed.line === "open" ? "Live" : "Connecting…"}
        {more && ` · ${more}`}
      </p>
      <ol className="frames" aria-label="Events">
        {shown.map((event) => (
          <li key={event.id} className={/error|failed|exhausted|stalled/.test(event.type) ? "trouble" : ""}>
            <details>
              <summary>
                <time className="at">{exactly(event.timestamp)}</time>
                <span className="type">{event.type}</span>
                <span className="hint">{hintOf(event)}</span>
              </summary>
              <pre tabIndex={0}>{pretty(event.payload)}</pre>
            </details>
          </li>
        ))}
      </ol>
      {shown.length === 0 && <p className="quiet">Nothing happened yet.</p>}
      <div ref={end} />
    </>
  );
}

const HINTS = ["status", "toolName", "stepNumber", "durationMs", "finishReason", "stage", "error", "method", "reason", "state"];

function hintOf({ payload }: Happening): string {
  const keys = HINTS.filter((key) => key in payload && !(key === "stepNumber" && "toolName" in payload));
  const words = keys.map((key) => {
    const value = payload[key];
    if (key === "durationMs") return `${value} ms`;
    return key === "stepNumber" ? `step ${Number(value) + 1}` : String(value);
  });
  return words.join(" ").slice(0, 120);
}

const ARROWS = { in: "↓", out: "↑", socket: "•" } as const;
const WAYS = { in: "received", out: "sent", socket: "socket" } as const;

function FramesPanel({ frames, onClear }: { frames: Frame[]; onClear: () => void }) {
  const [filter, setFilter] = useState("");
  const [shown, more] = newest(frames, filter, (frame) => `${frame.type} ${frame.hint}`);
  const end = useTail(shown.at(-1)?.n);
  return (
    <>
      <Filter value={filter} example="response, tool, rpc…" what="frames" onChange={setFilter} onClear={onClear} />
      {more && <p className="quiet">{more}</p>}
      <ol className="frames" aria-label="Frames">
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
