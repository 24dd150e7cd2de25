/** The pieces all panels of the inspector are made of. */

import { useEffect, useRef, type ReactNode } from "react";
import { pretty } from "./markdown";

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const TONES: Record<string, string> = {
  completed: "good",
  done: "good",
  open: "good",
  error: "bad",
  failed: "bad",
  denied: "bad",
  aborted: "wait",
  interrupted: "wait",
  failing: "wait",
  unknown: "wait",
  asked: "wait",
  sending: "wait",
};

/** A state of the journal, in its own word. */
export function State({ state }: { state: string }) {
  return <span className={`state ${TONES[state] ?? ""}`}>{state}</span>;
}

export function Value({ name, value }: { name: string; value: unknown }) {
  return (
    <div className="value">
      <span className="quiet">{name}</span>
      <pre tabIndex={0}>{pretty(value)}</pre>
    </div>
  );
}

/** Keeps a growing list at its end, as long as the reader is there. */
export function useTail(newest: unknown) {
  const end = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const panel = end.current?.closest(".panel");
    if (panel && panel.scrollHeight - panel.scrollTop - panel.clientHeight < 120) panel.scrollTop = panel.scrollHeight;
  }, [newest]);
  return end;
}

export const clock = (at: number): string => new Date(at).toLocaleTimeString("en-GB");
/** The time of today, or the day and the time. */
export const day = (at: number): string => {
  const date = new Date(at);
  const time = clock(at).slice(0, 5);
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
};
export const exactly = (at: number): string => `${clock(at)}.${String(at % 1000).padStart(3, "0")}`;
export const number = (count: number): string => count.toLocaleString("en");

export const took = (seconds: number): string =>
  seconds < 0.001 ? "<1 ms" : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;

/** The same for what may take minutes. */
export const tookLong = (seconds: number): string =>
  seconds < 60 ? `${Math.floor(seconds)} s` : `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
