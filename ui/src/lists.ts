/**
 * Lists inside of lists, as models write them. Markdown wants an inner list to begin under the text of its
 * item, which below `1. ` is three columns in; models often write two.
 */

const ITEM = /^ *(?:[-*+]|\d{1,9}[.)]) +/;
const NUMBERED = /^ *(\d{1,9}[.)] +)/;
const FENCE = /^ *(?:```|~~~)/;

/** The same text with what is inside of numbered items moved in as far as Markdown wants it. */
export function indented(text: string): string {
  if (!/^\d{1,9}[.)] /m.test(text)) return text;
  let fenced = false;
  let need = 0; // how far in the text of the last numbered item begins
  let shift = 0; // and by how much its inner list falls short of that
  return text
    .split("\n")
    .map((line) => {
      if (FENCE.test(line)) fenced = !fenced;
      if (fenced || !line.trim()) return line;
      const deep = line.length - line.trimStart().length;
      if (deep === 0) {
        need = NUMBERED.exec(line)?.[1]?.length ?? 0;
        shift = 0;
        return line;
      }
      if (ITEM.test(line) && deep < need) shift = need - deep;
      return " ".repeat(shift) + line;
    })
    .join("\n");
}
