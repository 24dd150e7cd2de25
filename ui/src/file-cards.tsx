/** What the file tools and bash did, as people read it. `null` for what does not look like one of them. */

import { useEffect, useState } from "react";
import { Counts, DiffView, TextsCounts, TextsDiff } from "./diff";
import { useDesk, type FileDiff } from "./files";
import { Numbered } from "./files-panel";
import { Icon } from "./icons";
import { Picture } from "./sources";
import { FEW_LINES, fields, Fold, text, texts, type Cards, type Fields } from "./card";

/** Tools of others may have the same names, and other fields. */
export const FILE_CARDS: Cards = {
  write: (input, output, part) => {
    const [path, content] = [text(input.path), text(input.content)];
    if (path === null || (output && typeof output.bytesWritten !== "number")) return null;
    const done = output !== null;
    return {
      title: <FileName path={path} />,
      body: content !== null && <Written path={path} content={content} call={done ? part.toolCallId : null} />,
    };
  },
  edit: (input, output) => {
    const [path, before, after] = [text(input.path), text(input.old_string), text(input.new_string)];
    if (path === null || (output && output.replaced !== true && output.created !== true)) return null;
    const known = before !== null && after !== null;
    return {
      title: (
        <>
          <FileName path={path} /> {known && <TextsCounts before={before} after={after} />}
        </>
      ),
      body: known && <TextsDiff before={before} after={after} label={`What changed in ${path}`} />,
    };
  },
  read: (input, output) => {
    const path = text(input.path);
    if (path === null) return null;
    const title = <FileName path={path} />;
    if (!output) return { title, body: null };
    if (output.kind === "image") return { title, body: <SeenPicture path={path} hash={text(output.hash)} /> };
    const content = text(output.content);
    if (content === null) return typeof output.kind === "string" ? { title, body: <p className="quiet">{text(output.mediaType)}</p> } : null;
    return { title, body: <Read path={path} content={content} total={output.totalLines} /> };
  },
  list: (input, output) => {
    const path = text(input.path) ?? "/";
    if (output && !Array.isArray(output.entries)) return null;
    return { title: <code>{path}</code>, body: output && <Names names={texts(output.entries)} count={output.count} folder={path} /> };
  },
  find: (input, output) => {
    const pattern = text(input.pattern);
    if (pattern === null || (output && !Array.isArray(output.files))) return null;
    return { title: <code>{pattern}</code>, body: output && <Names names={texts(output.files)} count={output.count} folder="" /> };
  },
  grep: (input, output) => {
    const query = text(input.query);
    if (query === null || (output && !Array.isArray(output.matches))) return null;
    return { title: <code>{query}</code>, body: output && <Matches output={output} /> };
  },
  delete: (input, output) => {
    const path = text(input.path);
    if (path === null || (output && typeof output.deleted !== "string")) return null;
    return { title: <code>{path}</code>, body: null };
  },
  bash: (input, output, part) => {
    const script = text(input.script) ?? text(input.command);
    const isTold = output && (typeof output.stdout === "string" || typeof output.stderr === "string");
    if (script === null || (output && !isTold)) return null;
    return { title: output && <ExitCode output={output} />, body: <Terminal script={script} output={output} isRunning={part.state !== "output-available" || part.preliminary === true} /> };
  },
};

/** The name of a file, which leads to it in the Files tab. */
function FileName({ path }: { path: string }) {
  const desk = useDesk();
  if (!desk) return <code>{path}</code>;
  return (
    <button type="button" className="link" title="Show it in the Files tab" onClick={() => desk.onOpen(path)}>
      <code>{path}</code>
    </button>
  );
}

/** What was written, or what that changed as long as the log knows: it is asked when somebody wants to see it. */
function Written({ path, content, call }: { path: string; content: string; call: string | null }) {
  const desk = useDesk();
  const lines = content.replace(/\n$/, "").split("\n").length;
  const [open, setOpen] = useState(lines <= FEW_LINES);
  const [found, setFound] = useState<FileDiff | null>(null);
  useEffect(() => {
    if (!open || !desk || call === null) return;
    let late = false;
    void desk.files.diffOfCall(call).then(({ value }) => !late && setFound(value?.files.find((one) => one.diff) ?? null));
    return () => {
      late = true;
    };
  }, [open, call, desk?.files]);
  const label = `What changed in ${path}`;
  return (
    <details className="fold" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {lines === 1 ? "1 line" : `${lines} lines`} {found?.diff ? <Counts diff={found.diff} /> : <TextsCounts before="" after={content} />}
      </summary>
      {found?.diff ? <DiffView diff={found.diff} label={label} /> : <TextsDiff before="" after={content} label={label} />}
    </details>
  );
}

/** A picture as it was when the model saw it. */
export function SeenPicture({ path, hash }: { path: string; hash: string | null }) {
  const desk = useDesk();
  return desk ? <Picture url={desk.files.seen(path, hash)} alt={path} /> : null;
}

/** Lines come with their numbers, `12<TAB>text`. */
function Read({ path, content, total }: { path: string; content: string; total: unknown }) {
  const lines = content.split("\n");
  const from = Number(/^(\d+)\t/.exec(content)?.[1] ?? Number.NaN);
  const bare = Number.isNaN(from) ? content : lines.map((line) => line.replace(/^\d+\t/, "")).join("\n");
  const count = typeof total === "number" ? `${lines.length} of ${total} lines` : `${lines.length} lines`;
  return (
    <Fold label={count} lines={lines.length}>
      <Numbered text={bare} label={path} from={Number.isNaN(from) ? 1 : from} />
    </Fold>
  );
}

function Names({ names, count, folder }: { names: string[]; count: unknown; folder: string }) {
  const all = typeof count === "number" ? count : names.length;
  return (
    <Fold label={all === 0 ? "nothing found" : all === 1 ? "1 entry" : `${all} entries`} lines={names.length}>
      <table className="names">
        <tbody>
          {names.map((name) => {
            const [, bare = name, size = ""] = /^(.*?)(?: \(([\d.]+ [KMG]?B)\))?$/.exec(name) ?? [];
            const path = folder === "" || bare.startsWith("/") ? bare : `${folder.replace(/\/$/, "")}/${bare}`;
            return (
              <tr key={name}>
                <td>{bare.endsWith("/") ? <code>{bare}</code> : <NamedFile path={path} name={bare} />}</td>
                <td className="size">{size}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Fold>
  );
}

function NamedFile({ path, name }: { path: string; name: string }) {
  const desk = useDesk();
  if (!desk) return <code>{name}</code>;
  return (
    <button type="button" className="link" onClick={() => desk.onOpen(path)}>
      <code>{name}</code>
    </button>
  );
}

type Match = { file: string; line: number; text: string };

function matchesOf(value: unknown): Match[] {
  const found: Match[] = [];
  for (const one of Array.isArray(value) ? value : []) {
    const whole = typeof one === "string" ? /^(.*?):(\d+): ?([^]*)$/.exec(one) : null;
    const parts = fields(one);
    if (whole) found.push({ file: whole[1]!, line: Number(whole[2]), text: whole[3]! });
    else if (parts && typeof parts.file === "string") found.push({ file: parts.file, line: Number(parts.line), text: String(parts.context ?? "") });
  }
  return found;
}

function Matches({ output }: { output: Fields }) {
  const matches = matchesOf(output.matches);
  const total = typeof output.totalMatches === "number" ? output.totalMatches : matches.length;
  const label = total === 0 ? "nothing found" : `${total === 1 ? "1 match" : `${total} matches`} in ${String(output.filesWithMatches ?? "some")} of ${String(output.filesSearched ?? "the")} files`;
  return (
    <Fold label={label} lines={matches.length}>
      <table className="matches">
        <tbody>
          {matches.map(({ file, line, text }, at) => (
            <tr key={at}>
              <td>
                <NamedFile path={file} name={`${file}:${line}`} />
              </td>
              <td>
                <pre>{text}</pre>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {text(output.note) && <p className="quiet">{text(output.note)}</p>}
    </Fold>
  );
}

// --- bash

function ExitCode({ output }: { output: Fields }) {
  if (typeof output.exitCode !== "number") return null;
  return <span className={`exit ${output.exitCode === 0 ? "good" : "bad"}`}>exit {output.exitCode}</span>;
}

const TERMINAL_LINES = 30;

function Terminal({ script, output, isRunning }: { script: string; output: Fields | null; isRunning: boolean }) {
  const said = text(output?.stdout) ?? "";
  const wrong = text(output?.stderr) ?? "";
  const lines = `${said}${wrong}`.split("\n").length;
  const changed = changedFiles(output?.changedFiles);
  return (
    <>
      <div className={`terminal ${lines > TERMINAL_LINES ? "long" : ""}`} role="region" aria-label="Terminal" tabIndex={0}>
        <pre className="script">{script}</pre>
        {said && <pre>{said}</pre>}
        {wrong && <pre className="wrong">{wrong}</pre>}
        {isRunning && <span className="cursor" aria-hidden="true" />}
      </div>
      {changed.length > 0 && (
        <p className="changed-files">
          <Icon name="file" size={14} />
          {changed.map(({ path, word }) => (
            <span key={path}>
              {word === "deleted" ? <code>{path}</code> : <NamedFile path={path} name={path} />} <span className="quiet">{word}</span>
            </span>
          ))}
        </p>
      )}
      {texts(output?.errors).map((error) => (
        <p key={error} className="tool-error">
          {error}
        </p>
      ))}
    </>
  );
}

function changedFiles(value: unknown): { path: string; word: string }[] {
  const given = fields(value) ?? {};
  const words = { created: "new", updated: "changed", deleted: "deleted" };
  return Object.entries(words).flatMap(([key, word]) => texts(given[key]).map((path) => ({ path, word })));
}
