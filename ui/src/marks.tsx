/** How an answer ended when it did not end well: stopped, failed, or not at all. */

import type { UIMessage } from "ai";
import { Icon } from "./icons";
import type { Ending } from "./journal";

/** `cut`: the turn ended in the middle, so what ran in it has ended, too. */
export type Marked = { kind: "stopped" | "failed" | "half"; text: string; cut?: true };

/**
 * What the journal says about the turns of an exchange, now and after a reload. `isTold`: the failure itself is
 * told below. An answer of which it says nothing is looked at: a part that never ended was cut off.
 */
export function ending(
  asked: UIMessage | null,
  answer: UIMessage[],
  endings: Ending[] | undefined,
  isTold: boolean,
): Marked | null {
  const said = answer.some((message) => message.parts.some((part) => part.type !== "step-start"));
  const ids = new Set(answer.map((message) => message.id));
  const ended =
    endings?.find((one) => one.message_id !== null && ids.has(one.message_id)) ??
    // Nothing was said in it: it hangs on the question, or on the answer that it was to go on with.
    endings?.find((one) => one.question !== null && one.question === ((said && answer.at(-1)) || asked)?.id);
  if (ended?.status === "aborted") {
    return { kind: "stopped", text: said ? "Stopped here." : "Stopped before an answer.", cut: true };
  }
  if (ended?.status === "error") {
    const what = said ? "This answer failed and is not complete." : "There is no answer: the turn failed.";
    return { kind: "failed", text: isTold || !ended.error ? what : `${what} ${ended.error}`, cut: true };
  }
  const steps = answer.map(stepsTaken).find((count) => count !== null) ?? null;
  if (steps !== null) {
    return { kind: "stopped", text: `Stopped after ${steps} steps, the most this agent takes in one go. Ask it to go on.` };
  }
  return answer.some(isCut) ? { kind: "half", text: "This answer was cut off and is not complete." } : null;
}

/** How many steps an answer took that ran out of them. */
function stepsTaken(message: UIMessage): number | null {
  const told = message.metadata as { stoppedBy?: unknown; steps?: unknown } | undefined;
  return told?.stoppedBy === "max_steps" && typeof told.steps === "number" ? told.steps : null;
}

const isCut = (message: UIMessage): boolean =>
  message.parts.some((part) => (part.type === "text" || part.type === "reasoning") && part.state === "streaming");

const ICONS = { stopped: "stop", failed: "close", half: "close" } as const;

export function Mark({ mark }: { mark: Marked }) {
  return (
    <p className={`mark ${mark.kind}`} data-mark={mark.kind}>
      <Icon name={ICONS[mark.kind]} size={14} /> {mark.text}
    </p>
  );
}
