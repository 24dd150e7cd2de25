/** Code that a model wrote, the calls that it makes as they happen, and what it printed. */

import { fields, Fold, text, texts, type Cards, type Fields } from "./card";
import { pretty } from "./markdown";
import { took } from "./rows";

const executed: Cards[string] = (input, output, part) => {
  const code = text(input.code);
  if (code === null || (output && typeof output.status !== "string")) return null;
  const calls = callsOf(output?.calls);
  const isRunning = part.state === "input-available" || (part.state === "output-available" && part.preliminary === true);
  return {
    title: calls.length > 0 && <span className="quiet">{calls.length === 1 ? "1 call" : `${calls.length} calls`}</span>,
    body: <Executed code={code} output={output} calls={calls} isRunning={isRunning} />,
    failed: output?.status === "error",
  };
};

export const CODE_CARDS: Cards = { execute: executed, browser_execute: executed };

type Made = { seq: number; name: string; state: string; input: unknown; outcome: unknown; seconds: number | null };

const WORDS: Record<string, string> = {
  started: "runs",
  pending: "asks a person",
  done: "done",
  failed: "failed",
  denied: "denied",
  unknown: "may have run",
};
const TONES: Record<string, string> = { done: "good", failed: "bad", denied: "bad", pending: "wait", unknown: "wait" };

function callsOf(value: unknown): Made[] {
  const made: Made[] = [];
  for (const one of Array.isArray(value) ? value : []) {
    const call = fields(one);
    if (!call || typeof call.name !== "string") continue;
    made.push({
      seq: Number(call.seq),
      name: call.name,
      state: text(call.state) ?? "",
      input: call.input,
      outcome: "output" in call ? call.output : call.error,
      seconds: typeof call.ms === "number" ? call.ms / 1000 : null,
    });
  }
  return made;
}

type ExecutedProps = { code: string; output: Fields | null; calls: Made[]; isRunning: boolean };

function Executed({ code, output, calls, isRunning }: ExecutedProps) {
  const lines = code.trimEnd().split("\n");
  const logs = texts(output?.logs);
  const error = text(output?.error);
  return (
    <>
      <Fold label={lines.length === 1 ? "1 line of code" : `${lines.length} lines of code`} lines={lines.length}>
        <pre className="code" tabIndex={0} aria-label="Code">
          {code.trimEnd()}
        </pre>
      </Fold>
      {calls.length > 0 && (
        <ol className="inner-calls" aria-label="Calls">
          {calls.map((call) => (
            <InnerCall key={call.seq} call={call} />
          ))}
        </ol>
      )}
      {(logs.length > 0 || isRunning) && (
        <div className={`terminal ${logs.length > 30 ? "long" : ""}`} role="region" aria-label="What it printed" tabIndex={0}>
          {logs.map((line, at) => (
            <pre key={at} className={line.startsWith("[error] ") ? "wrong" : ""}>
              {line}
            </pre>
          ))}
          {isRunning && <span className="cursor" aria-hidden="true" />}
        </div>
      )}
      {text(output?.note) && <p className="quiet">{text(output?.note)}</p>}
      {error !== null && (
        <pre className="code wrong" tabIndex={0} aria-label="Error">
          {error}
        </pre>
      )}
      {output && error === null && output.result !== undefined && output.result !== null && (
        <Fold label="Result" lines={pretty(output.result).split("\n").length}>
          <pre className="code" tabIndex={0} aria-label="Result">
            {pretty(output.result)}
          </pre>
        </Fold>
      )}
    </>
  );
}

function InnerCall({ call }: { call: Made }) {
  const isEmpty = call.outcome === undefined || call.outcome === null;
  return (
    <li data-state={call.state}>
      <details className="fold">
        <summary>
          <code>{call.name}</code>
          <span className="brief">{brief(call.input)}</span>
          <span className={`state ${TONES[call.state] ?? ""}`}>{WORDS[call.state] ?? call.state}</span>
          {call.seconds !== null && <span className="took">{took(call.seconds)}</span>}
        </summary>
        <pre className="code" tabIndex={0} aria-label={`Input of call ${call.seq}`}>
          {pretty(call.input)}
        </pre>
        {!isEmpty && (
          <pre className={`code ${call.state === "done" ? "" : "wrong"}`} tabIndex={0} aria-label={`Outcome of call ${call.seq}`}>
            {pretty(call.outcome)}
          </pre>
        )}
      </details>
    </li>
  );
}

/** Arguments in a line: the line is cut where it ends. */
function brief(value: unknown): string {
  const given = fields(value);
  if (!given) return value === undefined || value === null ? "" : String(value);
  return Object.entries(given)
    .map(([name, one]) => `${name}=${typeof one === "string" ? one : JSON.stringify(one)}`)
    .join(", ")
    .slice(0, 200);
}
