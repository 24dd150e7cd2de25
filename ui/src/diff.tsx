/** What changed in a text: lines that went, and lines that came. */

type Line = { sign: "+" | "-" | " " | "@"; text: string };

const LONGEST = 400;

export function DiffView({ diff, label }: { diff: string; label: string }) {
  return <Lines lines={parsed(diff)} label={label} />;
}

/** The difference of two texts, for those that no log has. */
export function TextsDiff({ before, after, label }: { before: string; after: string; label: string }) {
  return <Lines lines={compared(linesOf(before), linesOf(after))} label={label} />;
}

function Lines({ lines, label }: { lines: Line[]; label: string }) {
  const shown = lines.slice(0, LONGEST);
  return (
    <div className="diff" role="region" aria-label={label} tabIndex={0}>
      <div>
        {shown.map(({ sign, text }, at) => (
          <div key={at} className={KINDS[sign]}>
            {sign === "@" ? text : `${sign} ${text}`}
          </div>
        ))}
        {lines.length > LONGEST && <div className="hunk">… and {lines.length - LONGEST} more lines</div>}
      </div>
    </div>
  );
}

const KINDS = { "+": "came", "-": "went", " ": "", "@": "hunk" };

/** How many lines came and went, as `+3 −1`. */
export function Counts({ diff }: { diff: string }) {
  return <CountsOf lines={parsed(diff)} />;
}

export function TextsCounts({ before, after }: { before: string; after: string }) {
  return <CountsOf lines={compared(linesOf(before), linesOf(after))} />;
}

function CountsOf({ lines }: { lines: Line[] }) {
  const count = (sign: Line["sign"]) => lines.filter((line) => line.sign === sign).length;
  const [came, went] = [count("+"), count("-")];
  return (
    <span className="counts">
      {came > 0 && <span className="came">+{came}</span>} {went > 0 && <span className="went">−{went}</span>}
    </span>
  );
}

/** A unified diff. Its first two lines name the file. */
function parsed(diff: string): Line[] {
  const lines = diff.split("\n");
  const found: Line[] = [];
  for (const line of lines[0]?.startsWith("---") ? lines.slice(2) : lines) {
    const sign = line[0];
    if (sign === "@") found.push({ sign, text: line.replace(/^@@ (.*?) @@.*$/, "$1") });
    else if (sign === "+" || sign === "-" || sign === " ") found.push({ sign, text: line.slice(1) });
  }
  return found;
}

const linesOf = (text: string): string[] => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));

/** What is the same at the beginning and at the end stays; of the rest, the longest common lines if it is not much. */
function compared(before: string[], after: string[]): Line[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  const same = (lines: string[]): Line[] => lines.map((text) => ({ sign: " ", text }));
  const middle = between(before.slice(start, before.length - end), after.slice(start, after.length - end));
  return [...same(before.slice(0, start)), ...middle, ...same(end > 0 ? before.slice(-end) : [])];
}

const MOST_PAIRS = 250_000;

function between(before: string[], after: string[]): Line[] {
  const went = (text: string): Line => ({ sign: "-", text });
  const came = (text: string): Line => ({ sign: "+", text });
  if (before.length * after.length > MOST_PAIRS) return [...before.map(went), ...after.map(came)];
  // lengths[i][j]: how many lines the ends from i and from j on have in common
  const lengths = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      lengths[i]![j] = before[i] === after[j] ? lengths[i + 1]![j + 1]! + 1 : Math.max(lengths[i + 1]![j]!, lengths[i]![j + 1]!);
    }
  }
  const found: Line[] = [];
  let [i, j] = [0, 0];
  while (i < before.length && j < after.length) {
    if (before[i] === after[j]) {
      found.push({ sign: " ", text: before[i]! });
      i++;
      j++;
    } else if (lengths[i + 1]![j]! >= lengths[i]![j + 1]!) found.push(went(before[i++]!));
    else found.push(came(after[j++]!));
  }
  return [...found, ...before.slice(i).map(went), ...after.slice(j).map(came)];
}
