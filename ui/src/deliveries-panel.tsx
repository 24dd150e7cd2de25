/** The inspector's Deliveries tab: the messages of a conversation to platforms, and how each of them stands. */

import type { JournalFeed } from "./journal";
import type { DeliveryRow } from "./messengers";
import { Nothing } from "./panels";
import { clock, Fact, number, State, Value } from "./rows";

const KINDS: Record<DeliveryRow["kind"], string> = {
  answer: "Answer",
  more: "More of it",
  question: "Question",
  copy: "Question, shown twice",
  notice: "Notice",
};

export function DeliveriesPanel({ feed }: { feed: JournalFeed }) {
  const rows = feed.journal?.deliveries ?? [];
  if (rows.length === 0) return <Nothing feed={feed}>Nothing was to be shown in a messenger. Answers to what comes by one are.</Nothing>;
  return (
    <ol className="entries" aria-label="Deliveries, newest first">
      {rows.map((row) => (
        <Delivery key={`${row.turn} ${row.part}`} row={row} ahead={feed.ahead} />
      ))}
    </ol>
  );
}

/** `ahead`: by how many milliseconds our clock is ahead of the server's. */
function Delivery({ row, ahead }: { row: DeliveryRow; ahead: number }) {
  const next = row.next_at === null ? null : clock(row.next_at + ahead);
  const words = [`${row.messenger} ${row.chat}`];
  if (row.shown > 0) words.push(row.shown === 1 ? "1 character" : `${number(row.shown)} characters`);
  else if (row.state === "done" && row.ref === null) words.push("nothing to show");
  if (row.attempts > 0) words.push(row.attempts === 1 ? "tried once" : `tried ${row.attempts} times`);
  if (next) words.push(`again at ${next}`);
  // Of one that is over and went well an error is a word about it.
  const went = row.state === "done";
  return (
    <li data-delivery={row.kind} data-state={row.state}>
      <details>
        <summary>
          <span className="first">
            <span className="name">{KINDS[row.kind]}</span>
            <State state={row.state} />
            <time className="when">{clock(row.created_at + ahead)}</time>
          </span>
          <span className="second">{words.join(" · ")}</span>
        </summary>
        <p className="quiet">{meaning(row)}</p>
        {row.says && <Value name="It says" value={row.says} />}
        <dl className="facts">
          <Fact name="Message id there">{row.ref ?? "not known"}</Fact>
          <Fact name="Tried in vain">{row.attempts}</Fact>
          {next && <Fact name="Next try">{next}</Fact>}
          <Fact name="Changed">{clock(row.updated_at + ahead)}</Fact>
          {row.thread && <Fact name="Thread">{row.thread}</Fact>}
          <Fact name="Turn">{row.turn}</Fact>
          <Fact name="Part">{row.part}</Fact>
          {row.call_id && <Fact name="Call">{row.call_id}</Fact>}
        </dl>
      </details>
      {row.error && <p className={went ? "quiet" : "tool-error"}>{row.error}</p>}
    </li>
  );
}

function meaning({ state, ref }: DeliveryRow): string {
  switch (state) {
    case "planned":
      return ref === null ? "It is to be sent." : "It is there, and is to be edited.";
    case "sending":
      return "It is on its way. Were the process to die now, nobody would know whether it is there.";
    case "sent":
      return "It is there, and more of it may follow.";
    case "done":
      return ref === null ? "It is over: there was nothing to show." : "It is there, the whole of it.";
    case "failed":
      return "It is not shown, and nobody tries again.";
  }
}
