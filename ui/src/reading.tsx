/** Around a conversation: the part that scrolls, and the field to write in. */

import { useEffect, useLayoutEffect, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { AttachButton, AttachedList, type Attachments } from "./attachments";
import { Icon } from "./icons";
import { useMemory, type MemoryFeed } from "./memory";

/** Whether somebody is writing somewhere: a conversation that opens meanwhile takes no keys away from them. */
const isWriting = (): boolean => document.activeElement?.matches("input, textarea, select, [contenteditable]") ?? false;

/** Scrolls along with the answer as long as the reader is at its end. */
type TranscriptProps = { count: number; growth: unknown; memory: MemoryFeed; children: ReactNode };

export function Transcript({ count, growth, memory, children }: TranscriptProps) {
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const jumping = useRef(false);
  const top = useRef(0);
  const [away, setAway] = useState(false);
  const toEnd = () => {
    follows.current = true;
    setAway(false);
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  };
  useLayoutEffect(() => {
    follows.current = true;
  }, [count]);
  useLayoutEffect(() => {
    if (follows.current) toEnd();
  }, [growth, children]);
  useEffect(() => {
    if (!box.current) return;
    const watcher = new ResizeObserver(() => follows.current && toEnd());
    watcher.observe(box.current);
    if (box.current.firstElementChild) watcher.observe(box.current.firstElementChild); // a run grows by itself
    return () => watcher.disconnect();
  }, []);
  // Somebody looks for a message: its summary unfolds first, so this may take a few rounds.
  const { target, reached } = useMemory(memory);
  useLayoutEffect(() => {
    if (!target) return;
    const found = box.current?.querySelector<HTMLElement>(`[data-message~="${CSS.escape(target.id)}"]`);
    if (!found) return;
    follows.current = false;
    jumping.current = true;
    setAway(true);
    setTimeout(() => {
      jumping.current = false;
      follows.current = false;
      found.scrollIntoView({ block: "center" });
      if (!isWriting()) found.focus({ preventScroll: true });
      found.animate([{ boxShadow: "0 0 0 6px var(--mark)" }, { boxShadow: "0 0 0 6px transparent" }], 2500);
    });
    reached();
  });
  const scrolled = () => {
    if (jumping.current) return; // told of the place before the jump
    const { scrollHeight = 0, scrollTop = 0, clientHeight = 0 } = box.current ?? {};
    const near = scrollHeight - scrollTop - clientHeight < 80;
    // Only who scrolls up leaves the end: it may also have moved away, by more than this, since we went there.
    if (near) follows.current = true;
    else if (scrollTop < top.current) follows.current = false;
    top.current = scrollTop;
    setAway(!near && !follows.current);
  };
  return (
    <div className="transcript-frame">
      <div className="transcript" ref={box} onScroll={scrolled} tabIndex={-1}>
        <div className="column">{children}</div>
      </div>
      {away && (
        <button type="button" className="to-end" onClick={toEnd} aria-label="Go to the end">
          <Icon name="down" />
        </button>
      )}
    </div>
  );
}

/** `stopping`: it is busy with nothing but the end of an answer that was stopped. */
type ComposerProps = {
  busy: boolean;
  stopping: boolean;
  attachments: Attachments;
  /** Resolves to true once it is on its way: with files that takes a while, and may fail. */
  onSend: (text: string) => Promise<boolean>;
  onStop: () => void;
};

export function Composer({ busy, stopping, attachments, onSend, onStop }: ComposerProps) {
  const [text, setText] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    // On a phone the keyboard would cover the page.
    if (matchMedia("(hover: hover)").matches && !isWriting()) field.current?.focus();
  }, []);
  useLayoutEffect(() => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, 240)}px`;
  }, [text]);
  // Enter while an answer is written sends nothing, and says so as long as that is true.
  const [early, setEarly] = useState(false);
  useEffect(() => {
    if (!busy) setEarly(false);
  }, [busy]);
  const [bringing, setBringing] = useState(false);
  const carries = attachments.list.length > 0;
  const send = async () => {
    const said = text.trim();
    if ((!said && !carries) || bringing) return;
    if (busy) return setEarly(true);
    if (carries) {
      setBringing(true);
      const isSent = await onSend(said);
      setBringing(false);
      if (!isSent) return;
      setText("");
    } else {
      setText("");
      void onSend(said);
    }
    field.current?.focus();
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "Escape" && busy) onStop();
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void send();
  };
  return (
    <>
      <AttachedList attachments={attachments} disabled={bringing} />
      {early && (
        <p className="early" role="alert">
          {stopping
            ? "Not sent yet: the answer is being stopped. Your message stays here. Press Enter again in a moment."
            : "Not sent yet: the answer is still being written. Your message stays here. Press Enter again when it is done, or Escape to stop the answer."}
        </p>
      )}
      <form
        className="composer"
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <AttachButton attachments={attachments} disabled={bringing} />
        <label className="sr-only" htmlFor="message">
          Message
        </label>
        <textarea
          id="message"
          ref={field}
          rows={1}
          value={text}
          readOnly={bringing}
          placeholder="Write a message"
          enterKeyHint="send"
          aria-describedby="keys"
          onChange={(event) => setText(event.target.value)}
          onKeyDown={key}
          onPaste={attachments.paste}
        />
        <span id="keys" className="sr-only">
          Enter sends, Shift and Enter begins a line, Escape stops the answer.
        </span>
        {busy ? (
          <button key="stop" type="button" className="round" onClick={onStop} aria-label="Stop" title="Stop (Esc)">
            <Icon name="stop" />
          </button>
        ) : (
          <button key="send" type="submit" className="round primary" disabled={bringing || (!text.trim() && !carries)} aria-label="Send" title="Send (Enter)">
            <Icon name="send" />
          </button>
        )}
      </form>
    </>
  );
}
