import { memo, useRef, useState, type ReactElement, type ReactNode } from "react";
import Markdown, { defaultUrlTransform, type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { Icon } from "./icons";
import { indented } from "./lists";
import { Picture } from "./sources";

const plugins = [remarkGfm];

const components: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  ),
  img: ({ src, alt }) => <Picture url={typeof src === "string" ? src : ""} alt={alt ?? ""} />,
  pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
  table: ({ children }) => (
    <div className="scroll-x" tabIndex={0} role="region" aria-label="Table">
      <table>{children}</table>
    </div>
  ),
};

/** Pictures may be in the text itself; everything else only links. */
const url = (given: string, key: string): string =>
  key === "src" && given.startsWith("data:image/") ? given : defaultUrlTransform(given);

export const Prose = memo(function Prose({ text }: { text: string }) {
  return (
    <div className="prose">
      <Markdown remarkPlugins={plugins} components={components} urlTransform={url}>
        {indented(text)}
      </Markdown>
    </div>
  );
});

function CodeBlock({ children }: { children: ReactNode }) {
  const code = useRef<HTMLPreElement>(null);
  const given = (children as ReactElement<{ className?: string }> | undefined)?.props?.className ?? "";
  const language = /language-(\S+)/.exec(given)?.[1] ?? "";
  return (
    <div className="code">
      <div className="code-head">
        <span>{language || "text"}</span>
        <CopyButton label="Copy code" text={() => code.current?.textContent ?? ""} />
      </div>
      <pre ref={code} tabIndex={0}>
        {children}
      </pre>
    </div>
  );
}

export function CopyButton({ text, label }: { text: () => string; label: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      return;
    }
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" className="ghost small" onClick={copy} aria-label={copied ? "Copied" : label} title={label}>
      <Icon name={copied ? "check" : "copy"} size={15} />
    </button>
  );
}

/** Indented JSON, strings as they are. */
export function pretty(value: unknown): string {
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value, null, 2) ?? "";
  } catch {
    return String(value);
  }
}
