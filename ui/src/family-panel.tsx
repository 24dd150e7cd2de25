/** A family as one tree: the turns of the outermost agent, their calls, the runs of these, and what the children called. */

import { useEffect, useState } from "react";
import { Icon } from "./icons";
import { useFeed, type Family, type FamilyCall, type FamilyRun, type FamilyTurn, type JournalFeed, type Member } from "./journal";
import { Nothing, tokens } from "./panels";
import { aboutOf, isSame, type Hop, type Place } from "./places";
import { clock, State, took } from "./rows";

type Props = { feed: JournalFeed; place: Place; onGo: (place: Place) => void };

/** From when to when the bars of a turn go, how deep in the tree they are drawn, and what leads to a child. */
type Frame = { from: number; to: number; depth: number; here: Hop[]; onOpen: (path: Hop[]) => void };

/** A level of the tree, in pixels: all bars of a turn have one measure, however far in their names stand. */
const INDENT = 19;
const deeper = (frame: Frame): Frame => ({ ...frame, depth: frame.depth + 1 });

export function FamilyPanel({ feed, place, onGo }: Props) {
  const { looked, status } = useFeed(feed);
  const [family, setFamily] = useState<Family | null>(null);
  useEffect(() => {
    let late = false;
    if (status === "ready") void feed.family().then((found) => !late && found && setFamily(found));
    return () => {
      late = true;
    };
  }, [feed, status, looked]);
  if (!family) return <Nothing feed={feed}>Nothing yet.</Nothing>;
  const here = place.sub ?? [];
  const onOpen = (path: Hop[]) => onGo({ agent: place.agent, name: place.name, sub: path });
  const now = Date.now() - feed.ahead;
  return (
    <>
      <p className="quiet family-head">
        {family.class} · {family.members === 1 ? "no children yet" : `a family of ${family.members}`}
        {family.is_cut && " (the newest)"}
      </p>
      <ol className="family" aria-label="Turns of the family, newest first">
        {family.turns.toReversed().map((turn) => (
          <TurnTree key={turn.id} turn={turn} frame={{ from: turn.started_at ?? turn.created_at, to: ending(turn, now), depth: 0, here, onOpen }} />
        ))}
      </ol>
      <Others member={family} frame={{ from: 0, to: now, depth: 0, here, onOpen }} />
    </>
  );
}

/** A child may go on when the turn that asked for it is over. */
function ending(turn: FamilyTurn, now: number): number {
  const ends = turn.calls.flatMap((call) => call.runs.map((run) => run.ended_at ?? now));
  return Math.max(turn.ended_at ?? now, ...ends);
}

function TurnTree({ turn, frame }: { turn: FamilyTurn; frame: Frame }) {
  return (
    <li data-turn={turn.id}>
      <p className="family-turn">
        <span className="name">{turn.trigger}</span>
        <State state={turn.status} />
        {turn.usage && <span className="quiet">{tokens(turn.usage)}</span>}
        <time className="when">{clock(turn.created_at)}</time>
      </p>
      {turn.calls.length === 0 ? <p className="quiet family-none">No call.</p> : <Calls calls={turn.calls} frame={frame} />}
    </li>
  );
}

function Calls({ calls, frame: above }: { calls: FamilyCall[]; frame: Frame }) {
  const frame = deeper(above);
  return (
    <ul>
      {calls.map((call) => (
        <li key={call.call_id} data-call={call.tool}>
          <Line name={call.tool} state={call.state} from={call.started_at} to={call.settled_at} frame={frame} />
          {call.runs.length > 0 && <RunTrees runs={call.runs} frame={frame} />}
        </li>
      ))}
    </ul>
  );
}

function RunTrees({ runs, frame: above }: { runs: FamilyRun[]; frame: Frame }) {
  const frame = deeper(above);
  return (
    <ul>
      {runs.map((run) => {
        const calls = run.child?.turns.flatMap((turn) => turn.calls) ?? [];
        return (
          <li key={run.run_id} data-run={run.run_id}>
            <Line
              name={run.title}
              about={aboutOf(run.preview)}
              state={run.status}
              from={run.started_at}
              to={run.ended_at}
              frame={frame}
              path={run.child?.path}
            />
            {calls.length > 0 && <Calls calls={calls} frame={frame} />}
            {run.child && <Others member={run.child} frame={frame} />}
          </li>
        );
      })}
    </ul>
  );
}

/** What no call of a turn that is shown has asked for. */
function Others({ member, frame }: { member: Member; frame: Frame }) {
  if (member.runs.length === 0 && member.children.length === 0) return null;
  // Without a turn around them, each has its own measure.
  const own = (run: FamilyRun): Frame => (frame.from ? frame : { ...frame, from: run.started_at ?? 0, to: run.ended_at ?? frame.to });
  const inside = deeper(frame);
  return (
    <div className="family others">
      <p className="quiet">Not asked for by a call</p>
      {member.runs.map((run) => (
        <RunTrees key={run.run_id} runs={[run]} frame={own(run)} />
      ))}
      <ul>
        {member.children.map((child) => (
          <li key={JSON.stringify(child.path)}>
            <Line name={`${child.class} ${child.name}`} state="" from={null} to={null} frame={inside} path={child.path} />
            {child.turns.map((turn) => turn.calls.length > 0 && <TurnOf key={turn.id} turn={turn} frame={inside} />)}
            <Others member={child} frame={inside} />
          </li>
        ))}
      </ul>
    </div>
  );
}

/** A turn of a child that was talked to: it has its own measure. */
function TurnOf({ turn, frame }: { turn: FamilyTurn; frame: Frame }) {
  const now = frame.to;
  return <Calls calls={turn.calls} frame={{ ...frame, from: turn.started_at ?? turn.created_at, to: ending(turn, now) }} />;
}

type LineProps = {
  name: string;
  about?: string;
  state: string;
  from: number | null;
  to: number | null;
  frame: Frame;
  /** Of the child that it leads to. */
  path?: Hop[];
};

/** One row: what, how it stands, when it began, how long it took, and both as a bar. */
function Line({ name, about, state, from, to, frame, path }: LineProps) {
  const until = to ?? frame.to;
  const whole = Math.max(1, frame.to - frame.from);
  const here = path !== undefined && isSame(path, frame.here);
  return (
    <div className={`family-line ${path ? "agent" : ""} ${here ? "here" : ""}`}>
      <span className="name">
        <Icon name={path ? "agent" : "tool"} size={14} />
        {path ? (
          <button type="button" className="link" aria-current={here ? "true" : undefined} onClick={() => frame.onOpen(path)}>
            {name}
          </button>
        ) : (
          name
        )}
      </span>
      {about && <span className="hint">{about}</span>}
      {state && <State state={state} />}
      {from !== null && (
        <>
          <span className="when">
            {frame.from > 0 && `+${took(Math.max(0, from - frame.from) / 1000).replace("<1 ms", "0 ms")} · `}
            {took((until - from) / 1000)}
          </span>
          <span className="track" aria-hidden="true" style={{ marginLeft: -INDENT * frame.depth }}>
            <span
              className={`span ${to === null ? "open" : ""}`}
              style={{
                left: `${Math.min(99, (100 * Math.max(0, from - frame.from)) / whole)}%`,
                width: `${Math.max(1, Math.min(100, (100 * (until - from)) / whole))}%`,
              }}
            />
          </span>
        </>
      )}
    </div>
  );
}
