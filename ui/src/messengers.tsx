/** Messengers: whose chat a conversation is, and the messages that were shown there. */

import { Icon } from "./icons";

/** The chat that a conversation is in. `provider`: the platform, if it is known. */
export type Met = { messenger: string; provider: string | null; chat: string; thread: string; is_direct: boolean | null };

/** A message to a platform. Times are milliseconds of the server's clock. */
export type DeliveryRow = {
  turn: string;
  part: number;
  kind: "answer" | "more" | "question" | "copy" | "notice";
  messenger: string;
  chat: string;
  thread: string | null;
  state: "planned" | "sending" | "sent" | "done" | "failed";
  /** The platform's id of it. */
  ref: string | null;
  /** How many characters of it are there. */
  shown: number;
  says: string | null;
  call_id: string | null;
  /** How often it was tried in vain. */
  attempts: number;
  next_at: number | null;
  error: string | null;
  created_at: number;
  updated_at: number;
};

const capital = (word: string): string => word.replace(/^./, (letter) => letter.toUpperCase());

/** `Telegram`; with the name that the app has for the bot when that is another: `Telegram (sales)`. */
export function platformOf({ provider, messenger }: Met): string {
  if (provider === null) return capital(messenger);
  return provider === messenger ? capital(provider) : `${capital(provider)} (${messenger})`;
}

/** The mark of a conversation that came by a messenger; `chat`: also whose. */
export function Via({ met, chat }: { met: Met; chat?: boolean }) {
  const platform = platformOf(met);
  const where = met.is_direct === false ? `in the group ${met.chat}` : `with ${met.chat}`;
  return (
    <span className="via" data-messenger={met.messenger} title={`${platform}, ${where} (${met.thread})`}>
      <Icon name="said" size={13} />
      {chat ? `${platform} · ${met.chat}` : platform}
    </span>
  );
}
