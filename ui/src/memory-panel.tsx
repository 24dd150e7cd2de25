/** The inspector's Memory tab: how long the conversation is, what the model is told, and why. */

import { useEffect, useId, useRef, useState, type ReactNode } from "react";
import type { JournalFeed } from "./journal";
import { nameOf, useMemory, type Block, type CompactionRow, type Memory, type MemoryFeed, type Piece } from "./memory";
import { clock, day, number } from "./rows";

export function MemoryPanel({ feed }: { feed: JournalFeed }) {
  const memory = useMemory(feed.memory);
  useEffect(() => feed.memory.watch(), [feed]);
  if (feed.status === "absent") return <p className="quiet">{feed.reason}</p>;
  const known = memory.memory;
  if (!known) return <p className="quiet">{memory.trouble ?? "Reading the memory…"}</p>;
  return (
    <div className="memory">
      {memory.trouble && (
        <p className="tool-error" role="alert">
          {memory.trouble}
        </p>
      )}
      <Length memory={memory} known={known} />
      <Blocks memory={memory} blocks={known.blocks} />
      <PromptView memory={memory} known={known} />
      <Compactions rows={known.compactions} has={known.has_compaction} />
      {known.loaded.length > 0 && (
        <Section title="Loaded documents">
          <p>{known.loaded.join(", ")}</p>
        </Section>
      )}
      {known.omitted.length > 0 && (
        <Section title="Results left out of the prompt">
          <p className="quiet">Nothing else made room. The conversation still holds them.</p>
          <ul className="plain">
            {known.omitted.map((one) => (
              <li key={one.call_id}>
                <code>{one.tool ?? "a call"}</code> <span className="quiet">{one.call_id}</span>
              </li>
            ))}
          </ul>
        </Section>
      )}
    </div>
  );
}

export function Section({ title, tools, children }: { title: string; tools?: ReactNode; children: ReactNode }) {
  const id = useId();
  return (
    <section aria-labelledby={id}>
      <header>
        <h3 id={id}>{title}</h3>
        {tools}
      </header>
      {children}
    </section>
  );
}

/** A button that says afterwards how it went. */
function Act({ children, disabled, onAct }: { children: ReactNode; disabled?: boolean; onAct: () => Promise<string | null> }) {
  const [state, setState] = useState<{ working: boolean; said: string | null }>({ working: false, said: null });
  const act = async () => {
    setState({ working: true, said: null });
    setState({ working: false, said: await onAct() });
  };
  return (
    <>
      <span className="quiet said-after" role="status">
        {state.working ? "Working…" : state.said}
      </span>
      <button type="button" className="small" disabled={disabled || state.working} onClick={() => void act()}>
        {children}
      </button>
    </>
  );
}

function Bar({ now, most, label }: { now: number; most: number; label: string }) {
  const share = most > 0 ? Math.min(1, now / most) : 0;
  return (
    <svg
      className={`meter ${share >= 0.9 ? "full" : ""}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={most}
      aria-valuenow={Math.min(now, most)}
      viewBox="0 0 100 4"
      preserveAspectRatio="none"
    >
      <rect className="track" width="100" height="4" />
      <rect className="used" width={share * 100} height="4" />
    </svg>
  );
}

function Length({ memory, known }: { memory: MemoryFeed; known: Memory }) {
  const { estimate, threshold } = known.tokens;
  return (
    <Section
      title={nameOf(known.session)}
      tools={
        known.has_compaction ? (
          <Act onAct={memory.compact}>Compact now</Act>
        ) : undefined
      }
    >
      {estimate === null ? (
        <p className="quiet">Its length is not known while a block cannot be read.</p>
      ) : threshold === null ? (
        <p>
          About {number(estimate)} tokens. <span className="quiet">{known.has_compaction ? "It is shortened when somebody asks." : "This session has no compaction: configure_session() sets none up."}</span>
        </p>
      ) : (
        <>
          <Bar now={estimate} most={threshold} label="Length of the conversation" />
          <p className="quiet">
            About {number(estimate)} of {number(threshold)} tokens, after which earlier messages are summarised.
          </p>
        </>
      )}
    </Section>
  );
}

// --- blocks

function Blocks({ memory, blocks }: { memory: MemoryFeed; blocks: Block[] }) {
  return (
    <Section title="Blocks">
      {blocks.length === 0 && <p className="quiet">No memory blocks. An agent adds them in configure_session().</p>}
      <ul className="plain">
        {blocks.map((block) => (
          <BlockView key={block.label} block={block} memory={memory} />
        ))}
      </ul>
    </Section>
  );
}

function BlockView({ block, memory }: { block: Block; memory: MemoryFeed }) {
  const [draft, setDraft] = useState<{ text: string; was: string } | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  const field = useId();
  const edit = useRef<HTMLButtonElement>(null);
  const was = useRef(false);
  // The field takes the focus, and gives it back.
  useEffect(() => {
    if (was.current && !draft) edit.current?.focus();
    was.current = draft !== null;
  }, [draft]);
  const save = async () => {
    if (!draft) return;
    const said = await memory.write(block.label, draft.text, draft.was);
    setTrouble(said);
    if (!said) setDraft(null);
  };
  const stop = () => {
    setDraft(null);
    setTrouble(null);
  };
  const used = block.max_tokens === null ? `${number(block.tokens)} tokens` : `${number(block.tokens)} of ${number(block.max_tokens)} tokens`;
  return (
    <li className="block" data-block={block.label}>
      <p className="first">
        <span className="name">{block.label}</span>
        <span className="kind">{block.kind}</span>
        <span className="when">{used}</span>
      </p>
      {block.description && <p className="quiet">{block.description}</p>}
      {block.max_tokens !== null && <Bar now={block.tokens} most={block.max_tokens} label={`How full ${block.label} is`} />}
      {draft ? (
        <>
          <label className="sr-only" htmlFor={field}>
            Content of {block.label}
          </label>
          <textarea
            id={field}
            rows={Math.min(14, Math.max(4, draft.text.split("\n").length + 1))}
            value={draft.text}
            autoFocus
            aria-describedby={`${field}-keys`}
            onChange={(event) => setDraft({ ...draft, text: event.target.value })}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void save();
              if (event.key !== "Escape") return;
              event.stopPropagation();
              if (draft.text === draft.was) stop();
            }}
          />
          <span id={`${field}-keys`} className="sr-only">
            Control and Enter saves.
          </span>
          <div className="acts">
            <button type="button" className="primary small" onClick={() => void save()}>
              Save
            </button>
            <button type="button" className="small" onClick={stop}>
              Cancel
            </button>
          </div>
        </>
      ) : (
        <>
          <pre className="raw" tabIndex={0}>
            {block.content || "(empty)"}
          </pre>
          <div className="acts">
            {block.can_edit && (
              <button
                ref={edit}
                type="button"
                className="small"
                aria-label={`Edit ${block.label}`}
                onClick={() => setDraft({ text: block.content, was: block.content })}
              >
                Edit
              </button>
            )}
            {block.is_behind && <span className="behind-note">Written since, shows after the next refresh.</span>}
          </div>
        </>
      )}
      {trouble && (
        <p className="tool-error" role="alert">
          {trouble}
        </p>
      )}
    </li>
  );
}

// --- the prompt

const REASONS: Record<string, string> = {
  asked: "because it was asked for",
  compaction: "because the conversation was summarised",
  cleared: "because the conversation was cleared",
  "first use": "at its first use",
};

const PIECES: Record<string, string> = {
  blocks: "Memory blocks",
  get_system_prompt: "get_system_prompt()",
  capabilities: "Capabilities",
  before_turn: "before_turn()",
};

function PromptView({ memory, known }: { memory: MemoryFeed; known: Memory }) {
  const { prompt } = known;
  return (
    <Section
      title="Prompt of the next turn"
      tools={known.blocks.length > 0 ? <Act onAct={memory.refreshPrompt}>Refresh prompt</Act> : undefined}
    >
      {prompt.trouble && (
        <p className="tool-error" role="alert">
          {prompt.trouble}
        </p>
      )}
      <p className="quiet">
        About {number(prompt.tokens)} tokens.
        {prompt.last_refresh &&
          ` Made ${day(prompt.last_refresh.at)}, ${REASONS[prompt.last_refresh.reason] ?? `because of ${prompt.last_refresh.reason}`}.`}
      </p>
      <ul className="plain">
        {prompt.pieces.map((piece) => (
          <PieceView key={piece.name} piece={piece} />
        ))}
      </ul>
      <details className="fold" data-prompt="">
        <summary>The whole prompt</summary>
        <pre className="raw" tabIndex={0}>
          {prompt.text}
        </pre>
      </details>
    </Section>
  );
}

function PieceView({ piece }: { piece: Piece }) {
  return (
    <li className="piece" data-piece={piece.name}>
      <p className="first">
        <span className="name">{PIECES[piece.name] ?? piece.name}</span>
        <span className={`kind ${piece.is_used ? "used" : ""}`}>{piece.is_used ? "used" : "not used"}</span>
        {piece.text && <span className="when">{number(piece.tokens)} tokens</span>}
      </p>
      {piece.why.map((line) => (
        <p key={line} className={line.startsWith("Written since") ? "behind-note" : "quiet"}>
          {line}
        </p>
      ))}
      {piece.text && (
        <details className="fold">
          <summary>Text</summary>
          <pre className="raw" tabIndex={0}>
            {piece.text}
          </pre>
        </details>
      )}
    </li>
  );
}

// --- compactions

const WHY: Record<string, string> = {
  asked: "somebody asked for it",
  threshold: "the conversation outgrew its threshold",
  reactive: "the model refused the prompt as too long",
  proactive: "a step came near the model's limit",
};

const STATES: Record<CompactionRow["state"], string> = {
  shown: "shown",
  covered: "covered by a later one",
  branch: "on another branch",
};

function Compactions({ rows, has }: { rows: CompactionRow[]; has: boolean }) {
  if (rows.length === 0 && !has) return null;
  return (
    <Section title="Summaries">
      {rows.length === 0 && <p className="quiet">None yet. Nothing of this conversation is summarised.</p>}
      <ol className="entries" aria-label="Summaries, newest first">
        {rows.map((row) => (
          <li key={row.id} data-compaction={row.state}>
            <details>
              <summary>
                <span className="first">
                  <span className="name">{row.messages === null ? "Messages" : `${row.messages} messages`}</span>
                  <span className={`state ${row.state === "shown" ? "good" : ""}`}>{STATES[row.state]}</span>
                  <time className="when">{clock(row.created_at)}</time>
                </span>
                <span className="second">
                  {WHY[row.reason] ?? row.reason}
                  {row.tokens_before > 0 && ` · ${number(row.tokens_before)} tokens before`}
                </span>
              </summary>
              <pre className="raw" tabIndex={0}>
                {row.summary}
              </pre>
            </details>
          </li>
        ))}
      </ol>
    </Section>
  );
}
