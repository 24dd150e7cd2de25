/** One conversation: what was said, what is happening, what to say next. */

import { useAgentChat } from "@cloudflare/ai-chat/react";
import { getToolName, isToolUIPart, type UIMessage } from "ai";
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { useToolActions } from "./actions";
import { partsOf, useAttachments } from "./attachments";
import { browserTools } from "./browser-tools";
import type { Connection } from "./connection";
import { DeskContext } from "./files";
import { Icon } from "./icons";
import { Inspector, type Tab } from "./inspector";
import { useFeed, type CallRow, type Fork, type JournalFeed, type Version } from "./journal";
import { CopyButton } from "./markdown";
import { SUMMARY, useMemory } from "./memory";
import { ending, Mark, type Marked } from "./marks";
import { MessageView, textOf } from "./parts";
import type { AgentInfo, Place } from "./places";
import { questionOf } from "./question";
import { Composer, Transcript } from "./reading";
import { OtherRuns, useWaiting } from "./runs";
import type { MCPServersState } from "./servers";
import { SummaryCard } from "./summary";
import { useTap, type Tap } from "./tap";
import type { ToolActions, ToolPart } from "./tool-card";

type Props = {
  agent: Connection;
  place: Place;
  info: AgentInfo;
  tap: Tap;
  feed: JournalFeed;
  offers: boolean;
  servers: MCPServersState | null;
  tab: Tab | null;
  onTab: (tab: Tab | null) => void;
  onGo: (place: Place) => void;
  onFirst: (text: string) => void;
  onOver: () => void;
  bar: (clear: () => void, empty: boolean) => ReactNode;
};

/** Not every agent greets: so many milliseconds are waited for it. */
const GREETED_WITHIN = 2000;
const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const own = new Set(Object.keys(browserTools));
const none = new Set<string>();

/** A user message and what answers it. `after`: what the answer hangs on, also when that is in a summary. */
type Exchange = { key: string; summary: UIMessage | null; asked: UIMessage | null; after: string | null; answer: UIMessage[] };

function exchanges(messages: UIMessage[]): Exchange[] {
  const found: Exchange[] = [];
  for (const message of messages) {
    const last = found.at(-1);
    const begun = { key: message.id, summary: null, asked: null, after: last?.summary?.id ?? null, answer: [] };
    if (message.id.startsWith(SUMMARY)) found.push({ ...begun, summary: message });
    else if (message.role === "user") found.push({ ...begun, asked: message, after: message.id });
    else if (last && !last.summary) last.answer.push(message);
    else found.push({ ...begun, answer: [message] });
  }
  return found;
}

/** How long calls ran, by the ledger's own clock, in seconds. */
function durations(calls: CallRow[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const { call_id, started_at, settled_at } of calls) {
    if (started_at !== null && settled_at !== null) found.set(call_id, (settled_at - started_at) / 1000);
  }
  return found;
}

/** What a call waits for. */
function waitsFor(part: ToolPart): string {
  const question = questionOf(part);
  return question ? `${question.asks || getToolName(part)} asks you something.` : `${getToolName(part)} needs your approval.`;
}

export function Chat({ agent, place, info, tap, feed, offers, servers, tab, onTab, onGo, onFirst, onOver, bar }: Props) {
  const chat = useAgentChat({
    agent,
    tools: offers ? browserTools : undefined,
    syncMessagesToServer: false,
    onToolCall: async ({ toolCall, addToolOutput }) => {
      const run = offers && browserTools[toolCall.toolName]?.execute;
      if (!run) return; // another client's tool: its card asks for an answer
      let output: unknown;
      try {
        output = await run(toolCall.input);
      } catch (error) {
        output = { error: error instanceof Error ? error.message : String(error) };
      }
      addToolOutput({ toolCallId: toolCall.toolCallId, output });
    },
  });
  const { messages, status, error, isStreaming, isServerStreaming, isRecovering, isToolContinuation } = chat;
  const { line, lost, signedOut, running, told, session, sessionTrouble, unheard, stopping } = useTap(tap);
  const { journal } = useFeed(feed);

  // To the hook a stopped answer is over at once. To us when the server says so.
  const works = status === "submitted" || status === "streaming" || isStreaming || isRecovering || isToolContinuation;
  const busy = works || stopping !== null;
  const turns = useMemo(() => exchanges(messages), [messages]);
  const newest = turns.at(-1);
  const writes = status === "streaming" || (isServerStreaming && running !== undefined);

  // What versions there are is the server's to say: after a reload, and after what another tab did.
  const ids = messages.map((message) => message.id).join();
  useEffect(() => {
    if ((!busy || feed.looked === 0) && line === "open") feed.refresh();
  }, [feed, ids, told, busy, line]);
  const worked = useRef(false);
  useEffect(() => {
    if (line !== "open") return;
    if (worked.current && !busy) onOver();
    worked.current = busy;
  }, [busy, line]);

  const first = turns[0]?.asked ? textOf(turns[0].asked) : "";
  const { sessions, missed } = useMemory(feed.memory);
  const [refusal, setRefusal] = useState<string | null>(null);
  const fork = async (message: string) => setRefusal(await feed.memory.fork(message));
  useEffect(() => {
    if (first) onFirst(first);
  }, [first]);

  // What went wrong in one session is not said in another.
  const shown = useRef(sessions?.live);
  useEffect(() => {
    const before = shown.current;
    shown.current = sessions?.live;
    if (before === undefined || before === shown.current) return;
    setRefusal(null);
    chat.clearError();
  }, [sessions?.live]);

  const ran = useMemo(() => durations(journal?.calls ?? []), [journal]);
  const chatRef = useRef(chat);
  chatRef.current = chat;
  const actions = useToolActions(chat, agent, tap, offers ? own : none, ran);
  const waiting = useWaiting();

  const attachments = useAttachments();
  const desk = useMemo(
    () => ({
      files: feed.files,
      onOpen: (path: string) => {
        void feed.files.show(path);
        onTab("files");
      },
    }),
    [feed],
  );
  const send = async (text: string): Promise<boolean> => {
    setRefusal(null);
    chat.clearError();
    const { parts, trouble } = await partsOf(attachments.list, feed.files);
    attachments.setTrouble(trouble);
    if (trouble !== null) return false;
    // A new line begins with the conversation as it is: what was said before it came would vanish from the page.
    if (line === "open" && !agent.identified) await Promise.race([agent.ready, pause(GREETED_WITHIN)]);
    const said = text ? [{ type: "text" as const, text }] : [];
    void chatRef.current.sendMessage({ parts: [...said, ...parts] });
    attachments.clear();
    return true;
  };
  const stop = () => {
    void chat.stop();
    // A turn that another tab or the server began is not this hook's to stop, but its id is on the wire.
    const turn = tap.running;
    if (turn && isServerStreaming) agent.send(JSON.stringify({ type: "cf_agent_chat_request_cancel", id: turn.id }));
  };
  const regenerate = () => {
    const asked = newest?.asked;
    if (!asked) return;
    chat.clearError();
    void chat.regenerate({ messageId: asked.id });
  };
  // What was refused is not in the journal, so there is nothing to answer again: it is sent again.
  const tryAgain = () => {
    if (newest?.answer.length) return regenerate();
    chat.clearError();
    void chat.sendMessage();
  };
  const clear = () => {
    chat.clearError();
    chat.clearHistory();
  };

  const asking = messages
    .at(-1)
    ?.parts.find((part) => isToolUIPart(part) && part.state === "approval-requested");
  const failed = Boolean(status === "error" && error && line === "open" && !isRecovering);
  const endings = journal?.endings;
  const refused = agent.connectionError;

  let notice: { text: string; tone: "work" | "wait" | "bad" } | null = null;
  if (signedOut) {
    notice = { tone: "bad", text: "You are not signed in any more: your time is over, or the server does not know you." };
  } else if (refused) {
    notice = { tone: "bad", text: `The server closed the connection (${refused.code}${refused.reason && `: ${refused.reason}`}).` };
  } else if (lost || (line !== "open" && messages.length > 0)) {
    notice = { tone: "wait", text: lost ? "Connection lost. Reconnecting…" : "Connecting…" };
  } else if (isRecovering) notice = { tone: "wait", text: "Recovering an interrupted answer…" };
  else if (session?.phase === "compacting") notice = { tone: "work", text: "Summarising earlier messages…" };
  else if (waiting) notice = { tone: "wait", text: `${waiting} waits for your answer.` };
  else if (isToolContinuation && !writes) notice = { tone: "work", text: "Continuing with the result…" };
  else if (status === "submitted") notice = { tone: "work", text: "Waiting for the answer…" };
  else if (isServerStreaming && !running) notice = { tone: "work", text: "Waiting for a tool in the browser…" };
  else if (isServerStreaming && status !== "streaming") notice = { tone: "work", text: "Answering…" };
  else if (status === "streaming") notice = { tone: "work", text: "Answering…" };
  else if (stopping !== null) notice = { tone: "work", text: "Stopping…" };
  else if (asking && isToolUIPart(asking)) notice = { tone: "wait", text: waitsFor(asking) };
  else if (missed) notice = { tone: "wait", text: "That message is too far back to be shown here." };
  else if (refusal) notice = { tone: "bad", text: refusal };
  else if (unheard) notice = { tone: "bad", text: "The connection broke under your last message, and nothing of it arrived. Was it very long?" };
  else if (sessionTrouble) notice = { tone: "wait", text: `Earlier messages could not be summarised: ${sessionTrouble}` };

  return (
    <DeskContext value={desk}>
      <main className="chat" {...attachments.dropping}>
        {bar(clear, messages.length === 0)}
        {info.stand_in && (
          <p className="stand-in" role="note">
            <Icon name="thought" size={15} /> {info.stand_in}
          </p>
        )}
        <Transcript count={messages.length} growth={messages} memory={feed.memory}>
          <div
            className="log"
            role="log"
            aria-label="Conversation"
            aria-live="polite"
            aria-relevant="additions text"
            aria-busy={busy}
          >
            {turns.length === 0 && <Welcome info={info} onPick={(text) => void send(text)} />}
            {turns.map((turn) =>
              turn.summary ? (
                <SummaryCard key={turn.key} message={turn.summary} memory={feed.memory} actions={actions} />
              ) : (
                <ExchangeView
                  key={turn.key}
                  turn={turn}
                  fork={turn.after ? journal?.forks[turn.after] : undefined}
                  feed={feed}
                  busy={busy}
                  actions={actions}
                  newest={turn === newest}
                  live={turn === newest && writes}
                  mark={turn === newest && busy ? null : ending(turn.asked, turn.answer, endings, turn === newest && failed)}
                  onRegenerate={turn === newest && turn.asked && !busy && line === "open" ? regenerate : undefined}
                  onFork={!busy && line === "open" && feed.status === "ready" ? fork : undefined}
                />
              ),
            )}
            <OtherRuns />
          </div>
          {failed && (
            <div className="failure" role="alert">
              <p>{error?.message || "The turn failed."}</p>
              <div>
                {newest?.asked && (
                  <button type="button" onClick={tryAgain}>
                    Try again
                  </button>
                )}
                <button type="button" className="ghost" onClick={() => chat.clearError()}>
                  Dismiss
                </button>
              </div>
            </div>
          )}
        </Transcript>
        <footer className="foot">
          <p className={`notice ${notice?.tone ?? ""}`} role="status" data-status={status}>
            {notice && (
              <>
                <span className={notice.tone === "work" ? "dots" : "dot"} aria-hidden="true" />
                {notice.text}
              </>
            )}
            {signedOut && (
              <button type="button" onClick={() => location.reload()}>
                Sign in
              </button>
            )}
          </p>
          <Composer busy={busy} stopping={busy && !works} attachments={attachments} onSend={send} onStop={stop} />
        </footer>
      </main>
      {tab && (
        <Inspector
          tap={tap}
          feed={feed}
          state={agent.state}
          servers={servers}
          tab={tab}
          place={place}
          onTab={onTab}
          onGo={onGo}
          onClose={() => onTab(null)}
        />
      )}
    </DeskContext>
  );
}

type ExchangeProps = {
  turn: Exchange;
  fork?: Fork;
  feed: JournalFeed;
  busy: boolean;
  actions: ToolActions;
  newest: boolean;
  live: boolean;
  mark: Marked | null;
  onRegenerate?: () => void;
  onFork?: (message: string) => void;
};

function ExchangeView({ turn, fork, feed, busy, actions, newest, live, mark, onRegenerate, onFork }: ExchangeProps) {
  const other = useOther(feed, turn.after ?? undefined, fork);
  const old = other.messages !== null;
  const answer = other.messages ?? turn.answer;
  const done = answer.length > 0 && !live;
  const text = answer.map(textOf).filter(Boolean).join("\n\n");
  const last = answer.at(-1);
  return (
    <article className="turn">
      {turn.asked && (
        <div className="message user" data-role="user" data-message={turn.asked.id} tabIndex={-1}>
          <span className="sr-only">You said:</span>
          <MessageView message={turn.asked} actions={actions} open={false} live={false} />
        </div>
      )}
      {answer.length > 0 && (
        <div
          className={`message assistant ${old ? "other" : ""}`}
          data-role="assistant"
          data-message={answer.map((message) => message.id).join(" ")}
          tabIndex={-1}
          aria-busy={live}
        >
          <span className="sr-only">Answer:</span>
          {answer.map((message, index) => {
            const current = newest && !old && index === answer.length - 1;
            return (
              <MessageView
                key={message.id}
                message={message}
                actions={actions}
                open={current}
                live={current && live}
                readOnly={old}
                cut={mark?.cut && !old}
              />
            );
          })}
        </div>
      )}
      {mark && !old && <Mark mark={mark} />}
      {done && (
        <div className="under">
          {fork && (
            <span className="versions" role="group" aria-label="Versions of this answer">
              <button
                type="button"
                className="ghost small"
                aria-label="Earlier answer"
                disabled={other.shown === 0}
                onClick={() => other.show(other.shown - 1)}
              >
                <Icon name="left" size={15} />
              </button>
              <span aria-live="polite">
                {other.shown + 1} / {fork.versions.length}
              </span>
              <button
                type="button"
                className="ghost small"
                aria-label="Later answer"
                disabled={other.shown === fork.versions.length - 1}
                onClick={() => other.show(other.shown + 1)}
              >
                <Icon name="chevron" size={15} />
              </button>
            </span>
          )}
          {text && <CopyButton label="Copy answer" text={() => text} />}
          {onRegenerate && !old && (
            <button type="button" className="ghost small" onClick={onRegenerate} aria-label="Answer again" title="Answer again">
              <Icon name="again" size={15} />
            </button>
          )}
          {onFork && last && (
            <button
              type="button"
              className="ghost small"
              aria-label="New session from here"
              title="New session from here"
              onClick={() => onFork(last.id)}
            >
              <Icon name="fork" size={15} />
            </button>
          )}
          {old && fork && (
            <>
              <span className="quiet">The conversation goes on from {fork.active + 1}.</span>
              <button type="button" className="small" disabled={busy} onClick={other.choose}>
                Go on from this one
              </button>
            </>
          )}
          {other.trouble && (
            <span className="tool-error" role="alert">
              {other.trouble}
            </span>
          )}
        </div>
      )}
    </article>
  );
}

/** Another version of an answer, from the server's journal: looked at, or gone on from. */
function useOther(feed: JournalFeed, asked: string | undefined, fork: Fork | undefined) {
  const [picked, setPicked] = useState<string | null>(null);
  const [versions, setVersions] = useState<Version[]>([]);
  const [trouble, setTrouble] = useState<string | null>(null);
  const known = fork?.versions.join();
  // A new answer, and one that was gone on from, is shown at once.
  useEffect(() => {
    setPicked(null);
    setVersions([]);
    setTrouble(null);
  }, [known, fork?.active]);
  const at = picked === null || !fork ? -1 : fork.versions.indexOf(picked);
  const found = versions.find((version) => version.id === picked);
  const isOther = at >= 0 && at !== fork?.active && found !== undefined;
  return {
    messages: isOther ? found.messages : null,
    shown: isOther ? at : (fork?.active ?? 0),
    trouble,
    show: async (index: number) => {
      if (!asked || !fork) return;
      setTrouble(null);
      setPicked(fork.versions[index] ?? null);
      if (versions.length > 0) return;
      const all = await feed.versions(asked);
      setVersions(all);
      if (all.length === 0) setTrouble("The other answers could not be read.");
    },
    choose: async () => {
      if (picked) setTrouble(await feed.goOnFrom(picked));
    },
  };
}

const EXAMPLES = ["What can you do?", "What time is it where I am?", "Explain yourself with a short code example."];

function Welcome({ info, onPick }: { info: AgentInfo; onPick: (text: string) => void }) {
  return (
    <div className="welcome">
      <h2>{info.class}</h2>
      <p>{info.about ?? "Say something to begin. Reload or close the page at any time: the answer goes on."}</p>
      <ul>
        {(info.examples ?? EXAMPLES).map((text) => (
          <li key={text}>
            <button type="button" onClick={() => onPick(text)}>
              {text}
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
