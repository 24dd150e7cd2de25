/** The tools that have a card of their own. */

import { getToolName } from "ai";
import { BROWSER_CARDS } from "./browser-cards";
import { fields, type Cards, type Shown } from "./card";
import { CODE_CARDS } from "./code-cards";
import { FILE_CARDS } from "./file-cards";
import type { ToolPart } from "./tool-card";

const CARDS: Cards = { ...FILE_CARDS, ...CODE_CARDS, ...BROWSER_CARDS };

/** How a call of a tool that we know is shown; `null` for all others, and for what went wrong before it began. */
export function shownOf(part: ToolPart): Shown | null {
  const input = fields(part.input);
  const output = part.state === "output-available" ? fields(part.output) : null;
  const name = getToolName(part);
  if (!input || (typeof output?.error === "string" && !(name in CODE_CARDS))) return null;
  return Object.hasOwn(CARDS, name) ? CARDS[name]!(input, output, part) : null;
}
