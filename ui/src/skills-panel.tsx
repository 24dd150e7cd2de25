/** The inspector's Skills tab: what the agent has, from where, what is wrong with it, and which are active. */

import { useState, type ReactNode } from "react";
import { useAsked, useTold } from "./asked";
import { sized } from "./files";
import { Numbered } from "./files-panel";
import type { JournalFeed } from "./journal";
import { Section } from "./memory-panel";
import { Nothing } from "./panels";
import { Fact } from "./rows";
import type { Diagnostic, Languages, Resource, Scripts, Skill, Skills, SkillSource } from "./skills";

export function SkillsPanel({ feed }: { feed: JournalFeed }) {
  const { known, trouble, look } = useAsked(feed, feed.skills);
  if (feed.status !== "ready") return <Nothing feed={feed}>…</Nothing>;
  if (!known) return <p className={trouble ? "tool-error" : "quiet"}>{trouble ?? "Reading the skills…"}</p>;
  const nothing = known.sources.length === 0 && !known.problem;
  const failures = known.sources.map((source) => source.error); // said below
  const odd = known.diagnostics.filter((one) => !failures.includes(one.what));
  return (
    <div className="memory skills">
      {trouble && (
        <p className="tool-error" role="alert">
          {trouble}
        </p>
      )}
      {known.problem && (
        <p className="tool-error">
          The agent has no skills, because they could not be asked for: {known.problem} It asks again when it starts the next time.
        </p>
      )}
      {nothing && (
        <p className="quiet">
          This agent has no skills. They are folders with instructions for certain tasks: <code>skills = [skills.from_directory("skills")]</code> (see
          docs/howto-skills.md, and{" "}
          <a href="https://agentskills.io" target="_blank" rel="noopener noreferrer">
            what skills are
          </a>
          ).
        </p>
      )}
      {known.sources.length > 0 && <SkillList known={known} feed={feed} onChanged={() => look()} />}
      {odd.length > 0 && (
        <Section title="What is wrong, or odd">
          <ul className="plain diagnostics">
            {odd.map((one, at) => (
              <DiagnosticView key={at} one={one} />
            ))}
          </ul>
        </Section>
      )}
      {known.sources.length > 0 && (
        <Section
          title="Sources"
          tools={
            <button type="button" className="small" onClick={() => look(true)}>
              Look again
            </button>
          }
        >
          <ol className="plain" aria-label="Sources, in order">
            {known.sources.map((source) => (
              <SourceView key={source.id} source={source} />
            ))}
          </ol>
        </Section>
      )}
      {known.skills.length > 0 && <ScriptsView scripts={known.scripts} feed={feed} />}
    </div>
  );
}

// --- the skills

type ListProps = { known: Skills; feed: JournalFeed; onChanged: () => void };

function SkillList({ known, feed, onChanged }: ListProps) {
  const gone = known.active.filter((name) => !known.skills.some((skill) => skill.name === name));
  return (
    <>
      {known.skills.length === 0 && <p className="quiet">No skill is offered to the model.</p>}
      <ol className="entries" aria-label="Skills">
        {known.skills.map((skill) => (
          <SkillView key={skill.name} skill={skill} feed={feed} onChanged={onChanged} />
        ))}
      </ol>
      {gone.length > 0 && <p className="quiet">Active here, and in no source any more: {gone.join(", ")}.</p>}
    </>
  );
}

function SkillView({ skill, feed, onChanged }: { skill: Skill; feed: JournalFeed; onChanged: () => void }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <li data-skill={skill.name} data-active={skill.active}>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <span className="first">
            <span className="name">{skill.name}</span>
            <span className={`state ${skill.active ? "good" : ""}`}>{skill.active ? "active" : "not active"}</span>
          </span>
          <span className="second">{skill.description}</span>
        </summary>
        {isOpen && <SkillDetails skill={skill} feed={feed} />}
      </details>
      <Activate skill={skill} feed={feed} onChanged={onChanged} />
    </li>
  );
}

/** By hand, as the model would. Of one that changed since, the new instructions are added. */
function Activate({ skill, feed, onChanged }: { skill: Skill; feed: JournalFeed; onChanged: () => void }) {
  const [state, setState] = useState<{ working: boolean; said: string | null; bad: boolean }>({ working: false, said: null, bad: false });
  const act = async () => {
    setState({ working: true, said: null, bad: false });
    const { value, trouble } = await feed.activateSkill(skill.name);
    const said = trouble ?? (value?.added ? "Its instructions are in the conversation." : "Nothing was added: these instructions are there already.");
    setState({ working: false, said, bad: trouble !== null });
    feed.refresh();
    onChanged();
  };
  return (
    <p className="acts">
      <button type="button" className="small" aria-label={`Activate ${skill.name}`} disabled={state.working} onClick={() => void act()}>
        {skill.active ? "Activate again" : "Activate"}
      </button>
      <span className={state.bad ? "tool-error" : "quiet"} role="status">
        {state.working ? "Working…" : state.said}
      </span>
    </p>
  );
}

function SkillDetails({ skill, feed }: { skill: Skill; feed: JournalFeed }) {
  const found = useTold(() => feed.skill(skill.name), [feed, skill]);
  const [path, setPath] = useState<string | null>(null);
  const facts: [string, ReactNode][] = [
    ["Source", skill.source],
    ["Version", skill.version],
    ["License", skill.license],
    ["Compatibility", skill.compatibility],
    ["Allowed tools", skill.allowedTools && `${skill.allowedTools} (a hint of its author: it grants nothing)`],
  ];
  const shown = found?.value;
  return (
    <>
      <dl className="facts">
        {facts.map(([name, value]) => value && <Fact key={name} name={name}>{value}</Fact>)}
        {Object.entries(shown?.metadata ?? {}).map(([name, value]) => (
          <Fact key={`metadata ${name}`} name={name}>
            {typeof value === "string" ? value : JSON.stringify(value)}
          </Fact>
        ))}
      </dl>
      {!shown && <p className={found ? "tool-error" : "quiet"}>{found?.trouble ?? "Reading…"}</p>}
      {shown && (
        <>
          <Numbered text={shown.body} label={`Instructions of ${skill.name}`} />
          {shown.isCut && <p className="quiet">This is their beginning.</p>}
          {shown.resources.length === 0 ? (
            <p className="quiet">No files come with it.</p>
          ) : (
            <ul className="plain resources" aria-label={`Files of ${skill.name}`}>
              {shown.resources.map((one) => (
                <ResourceView key={one.path} one={one} skill={skill.name} feed={feed} isOpen={path === one.path} onOpen={setPath} />
              ))}
            </ul>
          )}
        </>
      )}
    </>
  );
}

type ResourceProps = { one: Resource; skill: string; feed: JournalFeed; isOpen: boolean; onOpen: (path: string | null) => void };

function ResourceView({ one, skill, feed, isOpen, onOpen }: ResourceProps) {
  return (
    <li data-resource={one.path}>
      <p className="line">
        <button type="button" className="link" aria-expanded={isOpen} onClick={() => onOpen(isOpen ? null : one.path)}>
          {one.path}
        </button>
        <span className="kind">{one.kind}</span>
        <span className="when">{one.size === null ? "" : sized(one.size)}</span>
      </p>
      {isOpen && <FileOfSkill skill={skill} path={one.path} feed={feed} />}
    </li>
  );
}

function FileOfSkill({ skill, path, feed }: { skill: string; path: string; feed: JournalFeed }) {
  const found = useTold(() => feed.skillFile(skill, path), [feed, skill, path]);
  const file = found?.value;
  if (!file) return <p className={found ? "tool-error" : "quiet"}>{found?.trouble ?? "Reading…"}</p>;
  if (file.text === null) return <p className="quiet">It is no text: {file.mediaType ?? "of no known type"}, {sized(file.size)}.</p>;
  return (
    <>
      <Numbered text={file.text} label={path} />
      {file.isCut && <p className="quiet">This is its beginning.</p>}
    </>
  );
}

// --- what is wrong with them, and where they come from

const TONES: Record<Diagnostic["level"], string> = { error: "bad", warning: "wait", note: "" };

function DiagnosticView({ one }: { one: Diagnostic }) {
  return (
    <li data-level={one.level}>
      <p className="line">
        {one.skill && <span className="name">{one.skill}</span>}
        <span className={`state ${TONES[one.level]}`}>{one.level}</span>
      </p>
      <p>
        {one.what} <span className="quiet">{one.nextStep}</span>
      </p>
      {one.source && <p className="quiet">In {one.source}.</p>}
    </li>
  );
}

function SourceView({ source }: { source: SkillSource }) {
  const count = source.skills.length;
  return (
    <li data-source={source.id}>
      <p className="line">
        <span className="name">{source.id}</span>
        <span className={`state ${source.error ? "bad" : "good"}`}>{source.error ? "failed" : "read"}</span>
        <span className="when">{count === 1 ? "1 skill" : `${count} skills`}</span>
      </p>
      {source.error && <p className="tool-error">{source.error}</p>}
    </li>
  );
}

// --- scripts

const WORKSPACE = { none: "not at all", read: "may be read", "read-write": "may be read and written" };

function ScriptsView({ scripts, feed }: { scripts: Scripts | null; feed: JournalFeed }) {
  const [found, setFound] = useState<{ value: Languages | null; trouble: string | null; working: boolean } | null>(null);
  if (!scripts)
    return (
      <Section title="Scripts">
        <p>
          The scripts of these skills are not run. <span className="quiet">An agent runs them with <code>skill_script_runner = skills.runner()</code>.</span>
        </p>
      </Section>
    );
  const { rights } = scripts;
  const check = async () => {
    setFound({ value: null, trouble: null, working: true });
    setFound({ ...(await feed.skillLanguages()), working: false });
  };
  return (
    <Section
      title="Scripts"
      tools={
        rights && (
          <button type="button" className="small" disabled={found?.working} onClick={() => void check()}>
            {found?.working ? "Trying…" : "Try what runs here"}
          </button>
        )
      }
    >
      {!rights && (
        <p>
          Scripts are run by <code>{scripts.runner}</code>, a runner of this app. <span className="quiet">What it allows is its own matter.</span>
        </p>
      )}
      {rights && (
        <dl className="facts" aria-label="What scripts may do">
          <Fact name="Files of the workspace">{WORKSPACE[rights.workspace]}</Fact>
          <Fact name="Network">{rights.network ?? "none"}</Fact>
          <Fact name="Tools">{rights.tools === null ? "chosen for each run" : rights.tools.join(", ") || "none"}</Fact>
          <Fact name="Time">{rights.timeout} s</Fact>
        </dl>
      )}
      {found?.trouble && <p className="tool-error">{found.trouble}</p>}
      {found?.value && (
        <ul className="plain languages" aria-label="What runs here">
          {Object.entries(found.value).map(([language, why]) => (
            <li key={language} data-language={language}>
              <p className="line">
                <span className="name">{language}</span>
                <span className={`state ${why ? "bad" : "good"}`}>{why ? "does not run here" : "runs here"}</span>
              </p>
              {why && <p className="quiet">{why}</p>}
            </li>
          ))}
        </ul>
      )}
    </Section>
  );
}
