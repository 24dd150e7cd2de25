/** The inspector's Extensions tab: what is loaded, in which order, what it may do, what it said; load, unload. */

import { useState, type FormEvent } from "react";
import { useAsked, useTold } from "./asked";
import { Confirm } from "./confirm";
import { rightsOf, type Extension, type Source } from "./extensions";
import { Numbered } from "./files-panel";
import { Icon } from "./icons";
import type { JournalFeed } from "./journal";
import { Section } from "./memory-panel";
import { Nothing } from "./panels";
import { Fact, Value } from "./rows";

const ORIGINS: Record<Extension["origin"], string> = {
  declared: "of the program",
  code: "loaded by a person or code",
  model: "loaded by the model",
  package: "of the program, without a sandbox",
};
const LANGUAGES = { javascript: "JavaScript", typescript: "TypeScript", python: "Python" };

export function ExtensionsPanel({ feed }: { feed: JournalFeed }) {
  const { known, trouble, look } = useAsked(feed, feed.extensions);
  if (feed.status !== "ready") return <Nothing feed={feed}>…</Nothing>;
  if (!known) return <p className={trouble ? "tool-error" : "quiet"}>{trouble ?? "Reading the extensions…"}</p>;
  return (
    <div className="memory skills extensions">
      {trouble && (
        <p className="tool-error" role="alert">
          {trouble}
        </p>
      )}
      {known.extensions.length === 0 && known.failed.length === 0 && (
        <p className="quiet">
          This agent has no extensions. They add tools and hooks: the program names them in <code>extensions = […]</code>, a person loads one below (see
          docs/howto-extensions.md).
        </p>
      )}
      <ol className="entries" aria-label="Extensions, in the order in which they hear">
        {known.extensions.map((one, at) => (
          <ExtensionView key={one.name} one={one} number={at + 1} feed={feed} onChanged={look} />
        ))}
      </ol>
      {known.failed.length > 0 && (
        <Section title="Not loaded">
          <ul className="plain diagnostics">
            {known.failed.map(({ what, error }) => (
              <li key={what} data-failed={what}>
                <p>
                  <strong>{what}</strong> <span className="tool-error">{error}</span>
                </p>
              </li>
            ))}
          </ul>
        </Section>
      )}
      <LoadForm feed={feed} onChanged={look} />
    </div>
  );
}

type ViewProps = { one: Extension; number: number; feed: JournalFeed; onChanged: () => void };

function ExtensionView({ one, number, feed, onChanged }: ViewProps) {
  const [trouble, setTrouble] = useState<string | null>(null);
  const unload = async () => {
    setTrouble(await feed.unloadExtension(one.name));
    onChanged();
  };
  const isOfProgram = one.origin === "declared" || one.origin === "package";
  const counts = [counted(one.tools.length, "tool"), counted(one.hooks.length, "hook"), counted(one.context.length, "block")];
  return (
    <li data-extension={one.name} data-origin={one.origin}>
      <details>
        <summary>
          <span className="first">
            <span className="name">{one.name}</span>
            <span className="kind">{one.version}</span>
            <span className="when">{ORIGINS[one.origin]}</span>
          </span>
          <span className="second">{[one.description, ...counts].filter(Boolean).join(" · ")}</span>
        </summary>
        <dl className="facts">
          <Fact name="Order">{number}</Fact>
          <Fact name="Runs">{one.language ? `as ${LANGUAGES[one.language]}, in a sandbox` : "in the process of the server"}</Fact>
          {one.hooks.length > 0 && <Fact name="Hears">{one.hooks.join(", ")}</Fact>}
          {one.context.length > 0 && <Fact name="Blocks">{one.context.join(", ")}</Fact>}
        </dl>
        <Rights one={one} />
        {one.tools.length > 0 && (
          <ul className="plain resources" aria-label={`Tools of ${one.name}`}>
            {one.tools.map((tool) => (
              <li key={tool.name} data-offered={tool.name}>
                <details className="fold">
                  <summary>
                    <code>{tool.name}</code>
                  </summary>
                  <Value name="Input" value={tool.schema} />
                </details>
                <p className="quiet">{tool.description}</p>
              </li>
            ))}
          </ul>
        )}
        {one.language && <SourceOf name={one.name} feed={feed} />}
        {one.log.length > 0 ? (
          <Value name="What it said, and what went wrong with it" value={one.log.join("\n")} />
        ) : (
          <p className="quiet">It has said nothing.</p>
        )}
        <Confirm
          label={`Unload ${one.name}`}
          className="small"
          question={`Unload ${one.name}?`}
          action="Unload"
          icon={
            <>
              <Icon name="bin" size={15} /> Unload
            </>
          }
          onYes={() => void unload()}
        >
          {isOfProgram
            ? `The agent loses its tools and hooks until it starts the next time: the program names it.${one.permissions?.storage ? " What it has kept is deleted." : ""}`
            : "The agent loses its tools and hooks, and what it has kept is deleted."}
        </Confirm>
      </details>
      {trouble && (
        <p className="tool-error" role="alert">
          {trouble}
        </p>
      )}
    </li>
  );
}

/** What it is made of, read when somebody looks. */
function SourceOf({ name, feed }: { name: string; feed: JournalFeed }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details className="fold" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Source</summary>
      {isOpen && <SourceText name={name} feed={feed} />}
    </details>
  );
}

function SourceText({ name, feed }: { name: string; feed: JournalFeed }) {
  const found = useTold(() => feed.extensionSource(name), [feed, name]);
  if (!found?.value) return <p className={found ? "tool-error" : "quiet"}>{found?.trouble ?? "Reading…"}</p>;
  return <Numbered text={found.value.source} label={`Source of ${name}`} />;
}

function Rights({ one }: { one: Extension }) {
  if (!one.permissions) return <p className="wide">It may do whatever the server may do.</p>;
  const rights = rightsOf(one.permissions);
  if (rights.length === 0) return <p className="quiet">It has no rights: it computes, and nothing else.</p>;
  return (
    <ul className="rights" aria-label={`Rights of ${one.name}`}>
      {rights.map((right) => (
        <li key={right}>It may {right}.</li>
      ))}
    </ul>
  );
}

const counted = (number: number, word: string): string => (number === 0 ? "" : number === 1 ? `1 ${word}` : `${number} ${word}s`);

// --- loading one

const EXAMPLE = `({
  tools: {
    count: {
      description: "Count words",
      parameters: { text: { type: "string" } },
      required: ["text"],
      execute: async ({ text }, host) => text.split(/\\s+/).length,
    },
  },
})`;
const EMPTY: Source = { name: "", version: "1.0.0", language: "javascript", source: "", workspace: "none", network: "", messages: "none", storage: "" };

function LoadForm({ feed, onChanged }: { feed: JournalFeed; onChanged: () => void }) {
  const [given, setGiven] = useState(EMPTY);
  const [state, setState] = useState<{ working: boolean; trouble: string | null }>({ working: false, trouble: null });
  const set = (field: keyof Source) => (event: { target: { value: string } }) => setGiven((before) => ({ ...before, [field]: event.target.value }));
  const load = async (event: FormEvent) => {
    event.preventDefault();
    if (state.working) return;
    const problem = !given.name.trim() ? "Give it a name." : !given.source.trim() ? "Give it a source." : null;
    if (problem) return setState({ working: false, trouble: problem });
    setState({ working: true, trouble: null });
    const trouble = await feed.loadExtension(given);
    setState({ working: false, trouble });
    if (trouble) return;
    setGiven(EMPTY);
    onChanged();
  };
  return (
    <details className="fold load-extension">
      <summary>Load an extension</summary>
      <form noValidate aria-label="Load an extension" onSubmit={(event) => void load(event)}>
        <label>
          Name
          <input value={given.name} maxLength={40} autoComplete="off" spellCheck={false} onChange={set("name")} />
        </label>
        <label>
          Version
          <input value={given.version} maxLength={64} autoComplete="off" spellCheck={false} onChange={set("version")} />
        </label>
        <label>
          Language
          <select value={given.language} onChange={set("language")}>
            {Object.entries(LANGUAGES).map(([value, words]) => (
              <option key={value} value={value}>
                {words}
              </option>
            ))}
          </select>
        </label>
        <label className="across">
          Source
          <textarea rows={8} value={given.source} placeholder={EXAMPLE} spellCheck={false} onChange={set("source")} />
        </label>
        <label>
          Files of the workspace
          <select value={given.workspace} onChange={set("workspace")}>
            <option value="none">not at all</option>
            <option value="read">read</option>
            <option value="read-write">read and write</option>
          </select>
        </label>
        <label>
          What was said
          <select value={given.messages} onChange={set("messages")}>
            <option value="none">not at all</option>
            <option value="read">read</option>
          </select>
        </label>
        <label>
          Values of its own
          <select value={given.storage} onChange={set("storage")}>
            <option value="">none</option>
            <option value="true">keep some</option>
          </select>
        </label>
        <label className="across">
          Hosts that it may fetch from
          <input value={given.network} placeholder="api.example.com, *.example.org" autoComplete="off" spellCheck={false} onChange={set("network")} />
        </label>
        <button type="submit" disabled={state.working}>
          {state.working ? "Loading…" : "Load"}
        </button>
        <p className="quiet across">It runs in a sandbox, with these rights and no others. Its tools are offered from the next turn on.</p>
        {state.trouble && (
          <p className="tool-error across" role="alert">
            {state.trouble}
          </p>
        )}
      </form>
    </details>
  );
}
