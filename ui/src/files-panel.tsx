/** The inspector's Files tab: the tree, one file, what changed turn by turn, and the way back. */

import { useEffect, useId, useRef, useState, type DragEvent, type ReactNode } from "react";
import { Confirm } from "./confirm";
import { Counts, DiffView } from "./diff";
import { droppedFiles, inFolder, ROOT, sized, useFiles, type Entry, type FileDiff, type FilesFeed, type Group, type Upload } from "./files";
import { Icon } from "./icons";
import type { JournalFeed } from "./journal";
import { Nothing } from "./panels";
import { day, Fact, number } from "./rows";

export function FilesPanel({ feed }: { feed: JournalFeed }) {
  const files = useFiles(feed.files);
  const [view, setView] = useState<"files" | "changes">("files");
  const [over, setOver] = useState<string | null>(null);
  useEffect(() => files.watch(), [files]);
  useEffect(() => {
    if (files.open !== null) setView("files");
  }, [files.open]);
  if (feed.status !== "ready") return <Nothing feed={feed}>…</Nothing>;
  if (files.status === "loading") return <p className="quiet">Reading the files…</p>;
  if (files.status === "none" && files.trouble) return <p className="quiet">{files.trouble}</p>;

  const drag = (event: DragEvent) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    event.stopPropagation();
    setOver(folderAt(event.target));
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    event.stopPropagation();
    setOver(null);
    for (const file of droppedFiles(event.dataTransfer)) void files.upload(file, folderAt(event.target));
  };
  return (
    <div
      className={`files ${over !== null ? "dropping" : ""}`}
      onDragEnter={drag}
      onDragOver={drag}
      onDragLeave={(event) => !event.currentTarget.contains(event.relatedTarget as Node | null) && setOver(null)}
      onDrop={drop}
    >
      <div className="files-bar">
        <div className="views" role="group" aria-label="What is shown">
          <button type="button" aria-pressed={view === "files"} onClick={() => (view === "files" ? void files.show(null) : setView("files"), void files.read(true))}>
            Files
          </button>
          <button type="button" aria-pressed={view === "changes"} onClick={() => setView("changes")}>
            Changes
          </button>
        </div>
        <UploadButton label="Upload" folder={ROOT} files={files}>
          <Icon name="upload" size={15} /> Upload
        </UploadButton>
      </div>
      <Uploads files={files} />
      <PutBack files={files} />
      {over !== null && <p className="drop-here">Drop to put it into {over}</p>}
      {view === "changes" ? (
        <Changes files={files} feed={feed} />
      ) : files.open !== null ? (
        <FileView files={files} path={files.open} />
      ) : (
        <Tree files={files} over={over} />
      )}
    </div>
  );
}

/** The folder that something is dropped on. */
const folderAt = (target: EventTarget): string =>
  (target instanceof Element && target.closest<HTMLElement>("[data-folder]")?.dataset.folder) || ROOT;

type UploadButtonProps = { label: string; folder: string; files: FilesFeed; ghost?: boolean; children: ReactNode };

function UploadButton({ label, folder, files, ghost = false, children }: UploadButtonProps) {
  const field = useRef<HTMLInputElement>(null);
  return (
    <>
      <button type="button" className={ghost ? "ghost small" : "small"} aria-label={label} title={label} onClick={() => field.current?.click()}>
        {children}
      </button>
      <input
        ref={field}
        type="file"
        multiple
        hidden
        aria-label={`${label}: files`}
        onChange={(event) => {
          for (const file of event.target.files ?? []) void files.upload(file, folder);
          event.target.value = ""; // the same file may be chosen again
        }}
      />
    </>
  );
}

function Uploads({ files }: { files: FilesFeed }) {
  if (files.uploads.length === 0) return null;
  return (
    <ul className="uploads" aria-label="Uploads">
      {files.uploads.map((upload) => (
        <li key={upload.id} data-upload={upload.path} data-state={upload.state}>
          <span className="name">{upload.path}</span>
          <UploadState upload={upload} files={files} />
        </li>
      ))}
    </ul>
  );
}

function UploadState({ upload, files }: { upload: Upload; files: FilesFeed }) {
  if (upload.state === "sending") {
    const most = Math.max(upload.file.size, 1);
    return <progress max={most} value={upload.sent} aria-label={`${upload.path}: ${Math.round((upload.sent / most) * 100)} %`} />;
  }
  if (upload.state === "done") return <span className="state good">stored</span>;
  return (
    <>
      <p className="tool-error" role="alert">
        {upload.trouble}
      </p>
      <span className="answer">
        {upload.state === "there" && (
          <button type="button" className="small" onClick={() => void files.replace(upload)}>
            Replace it
          </button>
        )}
        <button type="button" className="small ghost" onClick={() => files.dismiss(upload)}>
          Dismiss
        </button>
      </span>
    </>
  );
}

// --- the tree

function Tree({ files, over }: { files: FilesFeed; over: string | null }) {
  const root = files.folders.get(ROOT);
  if (!root) return <p className="quiet">There are no files yet. The agent makes them, or you drop some here.</p>;
  if (root.entries.length === 0) {
    return <p className="quiet drop-zone">There are no files yet. The agent makes them with its tools, and you may drop some here.</p>;
  }
  return <Folder files={files} path={ROOT} over={over} label="Files" />;
}

function Folder({ files, path, over, label }: { files: FilesFeed; path: string; over: string | null; label: string }) {
  const folder = files.folders.get(path);
  if (!folder) return <p className="quiet">Reading…</p>;
  return (
    <ul className="tree" aria-label={label}>
      {sorted(folder.entries).map((entry) => (
        <Row key={entry.path} files={files} entry={entry} over={over} />
      ))}
      {folder.entries.length === 0 && <li className="quiet">empty</li>}
      {folder.more && (
        <li>
          <button type="button" className="small" onClick={() => void files.more(path)}>
            Show more
          </button>
        </li>
      )}
    </ul>
  );
}

const sorted = (entries: Entry[]): Entry[] =>
  [...entries].sort((one, other) => Number(other.kind === "directory") - Number(one.kind === "directory") || (one.name < other.name ? -1 : 1));

function Row({ files, entry, over }: { files: FilesFeed; entry: Entry; over: string | null }) {
  const isFolder = entry.kind === "directory";
  const isOpen = isFolder && files.unfolded.has(entry.path);
  const folder = isFolder ? entry.path : undefined;
  return (
    <li data-path={entry.path} data-folder={folder} className={over !== null && over === folder ? "over" : ""}>
      <span className="row">
        <button
          type="button"
          className="ghost open"
          aria-expanded={isFolder ? isOpen : undefined}
          title={entry.path}
          onClick={() => void (isFolder ? files.unfold(entry.path) : files.show(entry.path))}
        >
          <Icon name={isFolder ? (isOpen ? "down-small" : "chevron") : entry.kind === "symlink" ? "away" : "file"} size={15} />
          <span className="name">{entry.name}</span>
          {entry.target !== null && <span className="quiet">→ {entry.target}</span>}
        </button>
        {isFolder ? (
          <UploadButton label={`Upload into ${entry.name}`} folder={entry.path} files={files} ghost>
            <Icon name="upload" size={14} />
          </UploadButton>
        ) : (
          <span className="size">{entry.kind === "file" && sized(entry.size)}</span>
        )}
        <time className="when">{day(entry.modified_at)}</time>
        <Delete files={files} entry={entry} />
      </span>
      {isOpen && <Folder files={files} path={entry.path} over={over} label={entry.name} />}
    </li>
  );
}

function Delete({ files, entry }: { files: FilesFeed; entry: Entry }) {
  const [trouble, setTrouble] = useState<string | null>(null);
  return (
    <>
      <Confirm
        label={`Delete ${entry.name}`}
        className="ghost small"
        question={`Delete ${entry.name}?`}
        action="Delete"
        icon={<Icon name="bin" size={14} />}
        onYes={() => void files.remove(entry.path).then(setTrouble)}
      >
        {entry.kind === "directory" ? "With all that is in it. " : ""}
        {files.changes ? "It can be brought back under Changes, as long as they are kept." : "It cannot be brought back."}
      </Confirm>
      {trouble && (
        <span className="tool-error" role="alert">
          {trouble}
        </span>
      )}
    </>
  );
}

// --- one file

function FileView({ files, path }: { files: FilesFeed; path: string }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), [path]);
  const { looked } = files;
  return (
    <article className="file" aria-label={path}>
      <header>
        <button type="button" className="ghost small" aria-label="Back to the files" title="Back to the files" onClick={() => void files.show(null)}>
          <Icon name="left" size={15} />
        </button>
        <h3 ref={heading} tabIndex={-1}>
          {path}
        </h3>
        {looked && (
          <>
            <a className="save" href={files.download(path)} download={looked.entry.name} aria-label={`Download ${looked.entry.name}`} title="Download">
              <Icon name="download" size={15} />
            </a>
            <Delete files={files} entry={looked.entry} />
          </>
        )}
      </header>
      {!looked && <p className={files.trouble ? "tool-error" : "quiet"}>{files.trouble ?? "Reading…"}</p>}
      {looked && (
        <>
          <dl className="facts">
            <Fact name="Size">
              <span title={`${number(looked.entry.size)} bytes`}>{sized(looked.entry.size)}</span>
            </Fact>
            <Fact name="Type">{looked.entry.media_type}</Fact>
            <Fact name="Written">{day(looked.entry.modified_at)}</Fact>
            <Fact name="Made">{day(looked.entry.created_at)}</Fact>
          </dl>
          {looked.kind === "text" && <Numbered text={looked.text ?? ""} label={path} />}
          {looked.kind === "text" && looked.is_cut && <p className="quiet">This is its beginning. Download it for the rest.</p>}
          {looked.kind === "image" && <img className="picture" src={files.content(path, looked.entry.modified_at)} alt={path} />}
          {looked.kind === "pdf" && <Pdf url={files.content(path, looked.entry.modified_at)} path={path} />}
          {looked.kind === "binary" && <p className="quiet">It is neither text nor a picture, and is not shown. Download it to look at it.</p>}
        </>
      )}
    </article>
  );
}

function Pdf({ url, path }: { url: string; path: string }) {
  return (
    <>
      <iframe className="pdf" src={url} title={path} />
      <a href={url} target="_blank" rel="noopener noreferrer">
        Open it in a tab of its own
      </a>
    </>
  );
}

/** A text with the numbers of its lines, from `from` on. */
export function Numbered({ text, label, from = 1 }: { text: string; label: string; from?: number }) {
  const lines = text.replace(/\n$/, "").split("\n");
  return (
    <div className="numbered" role="region" aria-label={label} tabIndex={0}>
      <pre aria-hidden="true">{lines.map((_, at) => at + from).join("\n")}</pre>
      <pre>{lines.join("\n")}</pre>
    </div>
  );
}

// --- what changed

function PutBack({ files }: { files: FilesFeed }) {
  const done = files.putBack;
  const [trouble, setTrouble] = useState<string | null>(null);
  if (!done) return null;
  const before = done.last === files.changes?.last ? done.before : null; // later, it would take back more than this
  return (
    <p className="put-back" role="status">
      <span>{done.paths === 0 ? "Nothing had to be put back." : done.paths === 1 ? "1 path was put back." : `${done.paths} paths were put back.`}</span>
      {before !== null && (
        <button type="button" className="small" onClick={() => void files.restore(before).then(setTrouble)}>
          Undo
        </button>
      )}
      <button type="button" className="small ghost" aria-label="Dismiss" title="Dismiss" onClick={files.forgetPutBack}>
        <Icon name="close" size={14} />
      </button>
      {trouble && <span className="tool-error">{trouble}</span>}
    </p>
  );
}

function Changes({ files, feed }: { files: FilesFeed; feed: JournalFeed }) {
  if (!files.changes) return <p className="quiet">These files are kept where nothing remembers earlier versions.</p>;
  if (files.changes.groups.length === 0) return <p className="quiet">Nothing has changed yet.</p>;
  return (
    <ol className="entries changes" aria-label="Changes, newest first">
      {files.changes.groups.map((group) => (
        <GroupView key={`${group.turn}-${group.first}`} group={group} files={files} feed={feed} />
      ))}
    </ol>
  );
}

const WORDS = { create: "new", update: "changed", delete: "deleted" };
const TONES = { create: "good", update: "", delete: "bad" };

function GroupView({ group, files, feed }: { group: Group; files: FilesFeed; feed: JournalFeed }) {
  const title = useId();
  const [open, setOpen] = useState(false);
  const [trouble, setTrouble] = useState<string | null>(null);
  const turn = feed.journal?.turns.find((one) => one.id === group.turn);
  const name = group.turn === null ? "outside of a turn" : turn ? `turn · ${turn.trigger}` : "turn";
  const all = group.paths.length + group.more;
  const last = group.last === files.changes?.last;
  return (
    <li data-change={group.turn ?? ""}>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <span className="first">
            <span className="name" id={title}>
              {name}
            </span>
            <time className="when">{day(group.at)}</time>
          </span>
          <span className="second">{all === 0 ? "nothing in the end" : summaryOf(group)}</span>
        </summary>
        {open && <GroupDiff group={group} files={files} />}
        <div className="answer" role="group" aria-labelledby={title}>
          <Confirm
            label="Restore to before this"
            className="small"
            question="Restore the files?"
            action="Restore"
            icon="Restore to before this"
            onYes={() => void files.restore(group.first - 1).then(setTrouble)}
          >
            All files become what they were before this, also those that were changed later. It is a change like any other, and can be undone.
          </Confirm>
          {group.turn !== null && !last && (
            <button type="button" className="small" onClick={() => void files.undo(group.turn!).then(setTrouble)}>
              Take back only this
            </button>
          )}
        </div>
        {trouble && (
          <p className="tool-error" role="alert">
            {trouble}
          </p>
        )}
      </details>
    </li>
  );
}

function summaryOf({ paths, more }: Group): string {
  const files = paths.filter((one) => one.kind !== "directory");
  const named = files.length > 0 ? files : paths;
  const words = named.slice(0, 3).map((one) => `${one.path} ${WORDS[one.change]}`);
  const rest = named.length - words.length + more;
  return [...words, ...(rest > 0 ? [`and ${rest} more`] : [])].join(", ");
}

function GroupDiff({ group, files }: { group: Group; files: FilesFeed }) {
  const [found, setFound] = useState<{ files: FileDiff[]; more: number } | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  useEffect(() => {
    let late = false;
    void files.diff(group).then(({ value, trouble }) => {
      if (late) return;
      setFound(value);
      setTrouble(trouble);
    });
    return () => {
      late = true;
    };
  }, [files, group.first, group.last]);
  if (trouble) return <p className="tool-error">{trouble}</p>;
  if (!found) return <p className="quiet">Comparing…</p>;
  const others = group.paths.filter((one) => one.kind !== "file");
  return (
    <>
      {found.files.map((file) => (
        <section key={file.path} className="changed" data-file={file.path}>
          <h4>
            <button type="button" className="link" disabled={file.change === "delete"} onClick={() => void files.show(file.path)}>
              {file.path}
            </button>
            <span className={`state ${TONES[file.change]}`}>{WORDS[file.change]}</span>
            {file.diff !== null && <Counts diff={file.diff} />}
          </h4>
          {file.diff ? <DiffView diff={file.diff} label={`What changed in ${file.path}`} /> : <p className="quiet">{file.why ?? "Empty."}</p>}
        </section>
      ))}
      {found.more > 0 && <p className="quiet">And {found.more} more files.</p>}
      {others.length > 0 && (
        <p className="quiet">
          {others.map((one) => `${one.kind === "directory" ? inFolder(one.path, "") : one.path} ${WORDS[one.change]}`).join(", ")}
        </p>
      )}
    </>
  );
}
