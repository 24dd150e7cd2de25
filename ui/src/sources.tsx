/** What an answer rests on and what it shows: sources, pictures, files. */

import type { FileUIPart, UIMessage } from "ai";
import { Icon } from "./icons";

type Part = UIMessage["parts"][number];

export const isSource = (part: Part): boolean => part.type === "source-url" || part.type === "source-document";

/** All sources of a message, once each, in the order in which they came. */
export function Sources({ parts }: { parts: Part[] }) {
  const seen = new Set<string>();
  return (
    <section className="sources" aria-label="Sources">
      <h3>Sources</h3>
      <ol>
        {parts.map((part) => {
          const key = part.type === "source-url" ? part.url : part.type === "source-document" ? part.sourceId : null;
          if (key === null || seen.has(key)) return null;
          seen.add(key);
          return (
            <li key={key}>
              {part.type === "source-url" ? (
                <a href={webOnly(part.url)} target="_blank" rel="noopener noreferrer">
                  {part.title || part.url} <span className="quiet">{hostOf(part.url)}</span>
                </a>
              ) : part.type === "source-document" ? (
                <>
                  {part.title || part.filename} <span className="quiet">{part.filename ?? part.mediaType}</span>
                </>
              ) : null}
            </li>
          );
        })}
      </ol>
    </section>
  );
}

export function FileView({ file }: { file: FileUIPart }) {
  const name = file.filename ?? file.mediaType;
  if (file.mediaType.startsWith("image/")) return <Picture url={file.url} alt={file.filename ?? ""} />;
  return (
    <a className="chip" href={file.url.startsWith("data:") ? file.url : webOnly(file.url)} download={name}>
      <Icon name="file" size={15} /> {name}
    </a>
  );
}

/**
 * A picture that comes with the message, or from this server. One from elsewhere would tell its host what is
 * read here, and that can be what it is for; it is named, and opened by who wants to.
 */
export function Picture({ url, alt }: { url: string; alt: string }) {
  if (/^(data:image\/|blob:)/.test(url) || hostOf(url) === location.host) return <img className="picture" src={url} alt={alt} />;
  const from = hostOf(url);
  return (
    <a className="chip" href={webOnly(url)} target="_blank" rel="noopener noreferrer">
      <Icon name="file" size={15} /> Picture{alt && `: ${alt}`} <span className="quiet">{from && `from ${from}`}</span>
    </a>
  );
}

/** The host that an address leads to. */
export function hostOf(url: string): string {
  try {
    return new URL(url, location.href).host;
  } catch {
    return "";
  }
}

/** Links lead to the web and nowhere else. */
export const webOnly = (url: string): string | undefined => (/^https?:\/\//i.test(url) ? url : undefined);
