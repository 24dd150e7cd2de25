/** The tools that have a card of their own. */

import { getToolName } from "ai";
import { BROWSER_CARDS } from "./browser-cards";
import { fields, text, type Cards, type Fields, type Shown } from "./card";
import { CODE_CARDS } from "./code-cards";
import { FILE_CARDS } from "./file-cards";
import type { ToolPart } from "./tool-card";

const CARDS: Cards = { ...FILE_CARDS, ...CODE_CARDS, ...BROWSER_CARDS };

/** What a call was about, in a word: of one that came to nothing. */
function said(input: Fields) {
  const about = text(input.path) ?? text(input.pattern) ?? text(input.query) ?? text(input.url);
  return about === null ? null : <code>{about}</code>;
}

/** How a call of a tool that we know is shown; `null` for all others, and for what went wrong before it began. */
export function shownOf(part: ToolPart): Shown | null {
  const input = fields(part.input);
  const name = getToolName(part);
  const isCode = Object.hasOwn(CODE_CARDS, name);
  // Code that waits for a person has an output already: what it has done so far.
  const hasOutput = part.state === "output-available" || (isCode && part.state === "approval-requested");
  const output = hasOutput ? fields(part.output) : null;
  if (!input || !Object.hasOwn(CARDS, name)) return null;
  const error = isCode ? null : text(output?.error);
  if (error !== null) return { title: said(input), body: <p className="tool-error">{error}</p>, failed: true };
  return CARDS[name]!(input, output, part);
}
