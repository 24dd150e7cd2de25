/** The files of the agent, as the server tells them: folders, one file, what changed; brought, taken away, put back. */

import { createContext, useContext, useSyncExternalStore } from "react";
import type { Told } from "./asking";

export type Entry = {
  path: string;
  name: string;
  kind: "file" | "directory" | "symlink";
  size: number;
  media_type: string;
  created_at: number;
  modified_at: number;
  target: string | null;
};
/** `text`: the beginning of it, all of it unless it is cut. */
export type Looked = { entry: Entry; kind: "text" | "image" | "pdf" | "binary"; text: string | null; is_cut: boolean };
export type ChangedPath = { path: string; kind: Entry["kind"]; change: "create" | "update" | "delete" };
/** Changes of one turn, or of one edit outside of any, by the numbers of the first and the last. */
export type Group = { turn: string | null; first: number; last: number; at: number; paths: ChangedPath[]; more: number };
/** `why`: there is no difference to show. */
export type FileDiff = { path: string; change: ChangedPath["change"]; diff: string | null; why: string | null };

type Folder = { path: string; entries: Entry[]; more: boolean; upload_bytes: number };
type Changes = { groups: Group[]; last: number };
/** `before`: the number that undoes it, as long as `last` is the newest change. */
type PutBack = { paths: number; before: number | null; last: number | null };

/** A file on its way to the server. `there`: something has its path, and it may be replaced. */
export type Upload = {
  id: number;
  path: string;
  file: File;
  sent: number;
  state: "sending" | "done" | "there" | "refused";
  trouble: string | null;
};

type Ask = <T>(rest: string, body?: Record<string, string>) => Promise<Told<T>>;

export const ROOT = "/";
const SHOWN_DONE = 4000;
const query = (path: string, more = "") => `?path=${encodeURIComponent(path)}${more}`;
export const inFolder = (folder: string, name: string): string => (folder === ROOT ? `/${name}` : `${folder}/${name}`);

/** The files of one agent, read while somebody looks at them. */
export class FilesFeed {
  folders = new Map<string, Folder>();
  /** `null`: not read yet, or the files are where no change is remembered. */
  changes: Changes | null = null;
  /** What is looked at. */
  looked: Looked | null = null;
  open: string | null = null;
  unfolded = new Set<string>([ROOT]);
  uploads: Upload[] = [];
  /** What was put back last. */
  putBack: PutBack | null = null;
  status: "loading" | "ready" | "none" = "loading";
  trouble: string | null = null;

  private version = 0;
  private listeners = new Set<() => void>();
  private watchers = 0;
  private reading = false;
  private again = false;
  private count = 0;

  constructor(
    private ask: Ask,
    private url: (rest: string) => string,
  ) {}

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  snapshot = (): number => this.version;

  /** Read along, until told to stop. */
  watch = (): (() => void) => {
    this.watchers++;
    void this.read(true);
    return () => {
      this.watchers--;
    };
  };

  /** Look again: at the changes, and if there is a new one, or at any rate, at what is shown. */
  read = async (anyway = false): Promise<void> => {
    if (this.watchers === 0) return;
    if (this.reading) {
      this.again = true;
      return;
    }
    this.reading = true;
    const before = this.changes?.last;
    const changes = await this.ask<Changes | null>("/files/changes");
    this.changes = changes.value ?? null;
    if (anyway || this.changes === null || this.changes.last !== before) await this.readShown();
    this.reading = false;
    this.changed();
    if (!this.again) return;
    this.again = false;
    void this.read();
  };

  private async readShown(): Promise<void> {
    const wanted = [...this.unfolded];
    const found = await Promise.all(wanted.map((path) => this.ask<Folder | null>(`/files${query(path)}`)));
    wanted.forEach((path, at) => {
      const folder = found[at]?.value;
      if (folder) this.folders.set(path, folder);
      else this.folders.delete(path);
    });
    const root = found[wanted.indexOf(ROOT)];
    this.trouble = root?.trouble ?? null;
    this.status = root?.value ? "ready" : "none";
    if (this.open !== null) await this.readOpen();
  }

  private async readOpen(): Promise<void> {
    const path = this.open;
    if (path === null) return;
    const { value, trouble } = await this.ask<Looked | null>(`/files/look${query(path)}`);
    if (this.open !== path) return;
    this.looked = value;
    if (trouble) this.trouble = trouble;
  }

  // --- looking

  unfold = async (path: string): Promise<void> => {
    if (this.unfolded.delete(path)) return this.changed();
    this.unfolded.add(path);
    const { value } = await this.ask<Folder | null>(`/files${query(path)}`);
    if (value) this.folders.set(path, value);
    this.changed();
  };

  /** More of a folder that has very many. */
  more = async (path: string): Promise<void> => {
    const known = this.folders.get(path);
    const after = known?.entries.at(-1)?.name;
    if (!known || after === undefined) return;
    const { value } = await this.ask<Folder>(`/files${query(path, `&after=${encodeURIComponent(after)}`)}`);
    if (value) this.folders.set(path, { ...value, entries: [...known.entries, ...value.entries] });
    this.changed();
  };

  /** Show a file; `null`: back to the tree. */
  show = async (path: string | null): Promise<void> => {
    this.open = path;
    this.looked = null;
    this.trouble = null;
    this.changed();
    await this.readOpen();
    this.changed();
  };

  /** The bytes of a file. `at`: when it was written, so that a new version is fetched anew. */
  content = (path: string, at: number): string => this.url(`/files/content${query(path, `&at=${at}`)}`);
  /** Those that it had when somebody looked, if that is known. */
  seen = (path: string, hash: string | null): string => this.url(`/files/content${query(path, hash === null ? "" : `&hash=${hash}`)}`);
  download = (path: string): string => this.url(`/files/content${query(path, "&download=1")}`);

  diff = ({ first, last }: Group) => this.ask<{ files: FileDiff[]; more: number }>(`/files/diff?first=${first}&last=${last}`);
  diffOfCall = (call: string) => this.ask<{ files: FileDiff[]; more: number }>(`/files/diff?call=${encodeURIComponent(call)}`);

  // --- changing

  remove = async (path: string): Promise<string | null> => {
    const { trouble } = await this.ask("/files/delete", { path });
    if (trouble === null && this.open === path) this.open = this.looked = null;
    await this.read(true);
    return trouble;
  };

  /** Everything as it stood after the change with this number. */
  restore = (seq: number) => this.back("/files/restore", { seq: String(seq) });
  /** What one turn changed, and nothing else. */
  undo = (turn: string) => this.back("/files/undo", { turn });

  private async back(rest: string, body: Record<string, string>): Promise<string | null> {
    const { value, trouble } = await this.ask<PutBack>(rest, body);
    this.putBack = value;
    await this.read(true);
    return trouble;
  }

  forgetPutBack = (): void => {
    this.putBack = null;
    this.changed();
  };

  // --- bringing

  upload = (file: File, folder: string): Promise<Upload> =>
    this.send({ id: this.count++, path: inFolder(folder, file.name), file, sent: 0, state: "sending", trouble: null }, false);

  replace = (upload: Upload): Promise<Upload> => this.send({ ...upload, sent: 0, state: "sending", trouble: null }, true);

  dismiss = (upload: Upload): void => {
    this.uploads = this.uploads.filter((one) => one.id !== upload.id);
    this.changed();
  };

  /** The first of these files that is larger than one may be here. */
  tooLarge = async (files: File[]): Promise<{ file: File; trouble: string } | null> => {
    if (files.length === 0) return null;
    const { value } = await this.ask<Folder | null>(`/files${query(ROOT)}`);
    for (const file of files) {
      const trouble = overBound(file, value?.upload_bytes);
      if (trouble) return { file, trouble };
    }
    return null;
  };

  /** Store a file in a folder, under a name that nothing has yet, without a word in the panel. */
  store = async (file: File, folder: string): Promise<Told<{ path: string }>> => {
    const { value } = await this.ask<Folder | null>(`/files${query(folder)}`);
    const path = inFolder(folder, freeName(file.name || "file", new Set(value?.entries.map((one) => one.name))));
    const tooMuch = overBound(file, value?.upload_bytes);
    const { trouble } = tooMuch ? { trouble: tooMuch } : await sent(this.url(`/files/upload${query(path)}`), file, () => {});
    await this.read(true);
    return trouble === null ? { value: { path }, trouble } : { value: null, trouble };
  };

  private async send(upload: Upload, replaces: boolean): Promise<Upload> {
    this.note(upload);
    let ended: Upload;
    const tooMuch = overBound(upload.file, this.folders.get(ROOT)?.upload_bytes);
    if (tooMuch) ended = { ...upload, state: "refused", trouble: tooMuch };
    else {
      const { status, trouble } = await sent(this.url(`/files/upload${query(upload.path, replaces ? "&replace=1" : "")}`), upload.file, (bytes) =>
        this.note({ ...upload, sent: bytes }),
      );
      const state = trouble === null ? "done" : status === 409 ? "there" : "refused";
      ended = { ...upload, sent: upload.file.size, state, trouble };
    }
    this.note(ended);
    if (ended.state === "done") setTimeout(() => this.dismiss(ended), SHOWN_DONE);
    await this.read(true);
    return ended;
  }

  private note(upload: Upload): void {
    const known = this.uploads.some((one) => one.id === upload.id);
    this.uploads = known ? this.uploads.map((one) => (one.id === upload.id ? upload : one)) : [...this.uploads, upload];
    this.changed();
  }

  private changed(): void {
    this.version++;
    for (const listener of this.listeners) listener();
  }
}

const overBound = (file: File, most: number | undefined): string | null =>
  most === undefined || file.size <= most
    ? null
    : `It has ${sized(file.size)}, and at most ${sized(most)} are taken here. Nothing was stored.`;

function freeName(name: string, taken: Set<string>): string {
  const dot = name.lastIndexOf(".");
  const [stem, ending] = dot > 0 ? [name.slice(0, dot), name.slice(dot)] : [name, ""];
  let free = name;
  for (let count = 2; taken.has(free); count++) free = `${stem}-${count}${ending}`;
  return free;
}

/** The files that were dropped. Folders look like files, and are none. */
export function droppedFiles(transfer: DataTransfer): File[] {
  const folders = new Set<string>();
  for (const item of transfer.items) {
    const entry = item.webkitGetAsEntry();
    if (entry?.isDirectory) folders.add(entry.name);
  }
  return [...transfer.files].filter((file) => !folders.has(file.name));
}

/** Send a file. `fetch` does not tell how far it is. */
function sent(url: string, file: File, onProgress: (bytes: number) => void): Promise<{ status: number; trouble: string | null }> {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    const over = () => {
      if (request.status >= 200 && request.status < 300) return resolve({ status: request.status, trouble: null });
      resolve({ status: request.status, trouble: errorIn(request.responseText) ?? "The server could not be reached. Nothing was stored." });
    };
    request.upload.onprogress = (event) => onProgress(event.loaded);
    request.onload = request.onerror = request.onabort = over;
    request.open("POST", url);
    request.setRequestHeader("content-type", "application/octet-stream");
    request.send(file);
  });
}

function errorIn(text: string): string | null {
  try {
    return (JSON.parse(text) as { error?: string }).error ?? null;
  } catch {
    return null;
  }
}

export const sized = (bytes: number): string =>
  bytes < 1024 ? `${bytes} B` : bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;

export function useFiles(files: FilesFeed): FilesFeed {
  useSyncExternalStore(files.subscribe, files.snapshot);
  return files;
}

/** The files that the calls of a conversation are about, and how to look at one in the panel. */
export type Desk = { files: FilesFeed; onOpen: (path: string) => void };
export const DeskContext = createContext<Desk | null>(null);
export const useDesk = (): Desk | null => useContext(DeskContext);
