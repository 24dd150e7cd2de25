/** What the inspector says, for a panel: read again with the journal, and whenever the panel asks. */

import { useEffect, useState, type DependencyList } from "react";
import type { Told } from "./asking";
import type { JournalFeed } from "./journal";

/** `look`: ask once more; with `again` the server looks again, too, as it does at first. */
export function useAsked<T>(feed: JournalFeed, ask: (again: boolean) => Promise<Told<T>>) {
  const [known, setKnown] = useState<T | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  const [asked, setAsked] = useState({ number: 0, again: true });
  const { looked } = feed;
  useEffect(() => {
    let late = false;
    void ask(asked.again).then((told) => {
      if (late) return;
      if (told.value) setKnown(told.value);
      setTrouble(told.trouble);
    });
    return () => {
      late = true;
    };
  }, [feed, looked, asked]);
  return { known, trouble, look: (again = false) => setAsked(({ number }) => ({ number: number + 1, again })) };
}

/** What the server says to one question, asked anew when what it depends on changes; `null` until then. */
export function useTold<T>(ask: () => Promise<Told<T>>, on: DependencyList): Told<T> | null {
  const [told, setTold] = useState<Told<T> | null>(null);
  useEffect(() => {
    let late = false;
    void ask().then((found) => !late && setTold(found));
    return () => {
      late = true;
    };
  }, on);
  return told;
}
