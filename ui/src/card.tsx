/** What cards for tools that we know are made of. */

import type { ReactNode } from "react";
import type { ToolPart } from "./tool-card";

export type Fields = Record<string, unknown>;
/** `title`: what follows the tool's name. `body`: in the place of input and output. `failed`: it says so itself. */
export type Shown = { title: ReactNode; body: ReactNode; failed?: boolean };
/** By the tool's name; `null` for what does not look like that tool. */
export type Cards = Record<string, (input: Fields, output: Fields | null, part: ToolPart) => Shown | null>;

export const fields = (value: unknown): Fields | null =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : null;
export const text = (value: unknown): string | null => (typeof value === "string" ? value : null);
export const texts = (value: unknown): string[] => (Array.isArray(value) ? value.filter((one) => typeof one === "string") : []);

export const FEW_LINES = 12;

/** A fold that is open when there is little in it. */
export function Fold({ label, lines, children }: { label: ReactNode; lines: number; children: ReactNode }) {
  return (
    <details className="fold" open={lines <= FEW_LINES}>
      <summary>{label}</summary>
      {children}
    </details>
  );
}
