/** Files that go along with a message: into the agent's files, and to the model what it can look at. */

import type { FileUIPart, TextUIPart } from "ai";
import { useRef, useState, type ClipboardEvent, type DragEvent } from "react";
import { droppedFiles, sized, useDesk, type FilesFeed } from "./files";
import { Icon } from "./icons";

export type Attached = { id: number; file: File };
type Part = FileUIPart | TextUIPart;

const FOLDER = "/attachments";
const MOST = 8;
/** What models look at by themselves. Everything else they read with their tools. */
const SEEN = /^(image\/(png|jpeg|gif|webp)|application\/pdf)$/;
const SEEN_BYTES = 3.5 * 1024 * 1024;
/** Of all that a message carries: a frame has a bound, and is a third longer than its bytes. */
const CARRIED_BYTES = 5 * 1024 * 1024;

/** What is attached to the message that is being written. */
export function useAttachments() {
  const [list, setList] = useState<Attached[]>([]);
  const [trouble, setTrouble] = useState<string | null>(null);
  const count = useRef(0);
  const add = (files: Iterable<File>) => {
    const more = [...files].map((file) => ({ id: count.current++, file }));
    if (more.length === 0) return;
    setTrouble(list.length + more.length > MOST ? `At most ${MOST} files go with one message.` : null);
    setList([...list, ...more].slice(0, MOST));
  };
  return {
    list,
    trouble,
    setTrouble,
    add,
    remove: (id: number) => setList(list.filter((one) => one.id !== id)),
    clear: () => {
      setList([]);
      setTrouble(null);
    },
    /** For whatever files may be dropped on. */
    dropping: {
      onDragOver: (event: DragEvent) => {
        if (event.dataTransfer.types.includes("Files")) event.preventDefault();
      },
      onDrop: (event: DragEvent) => {
        if (!event.dataTransfer.types.includes("Files")) return;
        event.preventDefault();
        add(droppedFiles(event.dataTransfer));
      },
    },
    paste: (event: ClipboardEvent) => {
      if (event.clipboardData.files.length === 0) return;
      event.preventDefault();
      add(event.clipboardData.files);
    },
  };
}

export type Attachments = ReturnType<typeof useAttachments>;

/** Store what is attached, and make it parts of a message; or say why that is not possible, and leave nothing behind. */
export async function partsOf(attached: Attached[], files: FilesFeed): Promise<{ parts: Part[]; trouble: string | null }> {
  const [pictures, notes]: [Part[], Part[]] = [[], []];
  const seen = seenOf(attached);
  const toStore = attached.map(({ file }) => file);
  const tooLarge = await files.tooLarge(toStore.filter((file) => !seen.has(file)));
  if (tooLarge) return { parts: [], trouble: notSent(tooLarge.file, tooLarge.trouble) };
  const stored: string[] = [];
  for (const file of toStore) {
    const { value, trouble } = await files.store(file, FOLDER);
    if (trouble !== null && !seen.has(file)) {
      for (const path of stored) await files.remove(path);
      return { parts: [], trouble: notSent(file, trouble) };
    }
    if (seen.has(file)) pictures.push({ type: "file", mediaType: file.type, filename: file.name, url: await dataUrl(file) });
    if (trouble === null) {
      stored.push(value.path);
      notes.push({ type: "text", text: noteOf(value.path, file) });
    }
  }
  return { parts: [...pictures, ...notes], trouble: null };
}

/** What the model is shown at once, as far as there is room in a message. */
function seenOf(attached: Attached[]): Set<File> {
  let carried = 0;
  return new Set(
    attached.flatMap(({ file }) => {
      const isSeen = SEEN.test(file.type) && file.size <= SEEN_BYTES && carried + file.size <= CARRIED_BYTES;
      if (isSeen) carried += file.size;
      return isSeen ? [file] : [];
    }),
  );
}

const notSent = (file: File, why: string): string => `The message was not sent, because of ${file.name}. ${why}`;

const noteOf = (path: string, file: File): string =>
  `[Attached: ${path} (${[file.type, sized(file.size)].filter(Boolean).join(", ")})]`;
const NOTE = /^\[Attached: (\/.+) \(([^()]*)\)\]$/;

/** What a text part says of a file that went along, if it says that. */
export function attachedIn(text: string): { path: string; about: string } | null {
  const found = NOTE.exec(text);
  return found ? { path: found[1]!, about: found[2]! } : null;
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** A file that went along with a message; its name leads to it. */
export function AttachedChip({ path, about }: { path: string; about: string }) {
  const desk = useDesk();
  const name = path.slice(path.lastIndexOf("/") + 1);
  const inside = (
    <>
      <Icon name="clip" size={15} /> {name} <span className="quiet">{about}</span>
    </>
  );
  if (!desk) return <span className="chip">{inside}</span>;
  return (
    <button type="button" className="chip" title={path} onClick={() => desk.onOpen(path)}>
      {inside}
    </button>
  );
}

/** What is attached, above the message field. */
export function AttachedList({ attachments, disabled }: { attachments: Attachments; disabled: boolean }) {
  const { list, trouble, remove } = attachments;
  return (
    <>
      {trouble && (
        <p className="early" role="alert">
          {trouble}
        </p>
      )}
      {list.length > 0 && (
        <ul className="attached" aria-label="Attached">
          {list.map(({ id, file }) => (
            <li key={id} className="chip">
              <Icon name="clip" size={15} /> {file.name} <span className="quiet">{sized(file.size)}</span>
              <button type="button" className="ghost small" disabled={disabled} aria-label={`Leave out ${file.name}`} title="Leave it out" onClick={() => remove(id)}>
                <Icon name="close" size={13} />
              </button>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

export function AttachButton({ attachments, disabled }: { attachments: Attachments; disabled: boolean }) {
  const field = useRef<HTMLInputElement>(null);
  return (
    <>
      <button type="button" className="round ghost" disabled={disabled} aria-label="Attach files" title="Attach files" onClick={() => field.current?.click()}>
        <Icon name="clip" />
      </button>
      <input
        ref={field}
        type="file"
        multiple
        hidden
        aria-label="Files to attach"
        onChange={(event) => {
          attachments.add(event.target.files ?? []);
          event.target.value = "";
        }}
      />
    </>
  );
}
