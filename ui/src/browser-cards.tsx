/** A page that the model has open: its address, what was done there, and how it looked. */

import type { ReactNode } from "react";
import { Fold, text, type Cards, type Fields } from "./card";
import { SeenPicture } from "./file-cards";
import { pretty, Prose } from "./markdown";
import { hostOf, webOnly } from "./sources";

/** A card for a tool whose output says which page it was: what is wanted of it, and the field that has it. */
const onPage =
  (shown: (input: Fields, output: Fields) => ReactNode): Cards[string] =>
  (input, output) => {
    if (output && typeof output.url !== "string") return null;
    const address = text(output?.url) ?? text(input.url);
    return {
      title: address !== null && webOnly(address) && <code>{hostOf(address)}</code>,
      body: output && (
        <>
          {webOnly(text(output.url)!) && <Address url={text(output.url)!} title={text(output.title)} />}
          {shown(input, output)}
          {text(output.note) && <p className="quiet">{text(output.note)}</p>}
        </>
      ),
    };
  };

export const BROWSER_CARDS: Cards = {
  browser_open: onPage(() => null),
  browser_click: onPage((input) => <p className="quiet">Clicked on {text(input.ref)}.</p>),
  browser_type: onPage((input) => (
    <p className="quiet">
      Wrote “{text(input.text)}” into {text(input.ref)}
      {input.submit === true ? " and pressed Enter." : "."}
    </p>
  )),
  browser_snapshot: onPage((_, output) => <Text label="What it shows" value={text(output.snapshot)} />),
  browser_screenshot: onPage((_, output) => <SeenPicture path={text(output.path) ?? ""} hash={text(output.hash)} />),
  browser_markdown: onPage((_, output) => {
    const read = text(output.markdown) ?? "";
    return (
      <Fold label="What can be read there" lines={read.split("\n").length}>
        <Prose text={read} />
      </Fold>
    );
  }),
  browser_links: onPage((_, output) => <Text label="Links" value={pretty(output.links)} />),
  browser_scrape: onPage((_, output) => <Text label="What was found" value={pretty(output.results)} />),
  browser_extract: onPage((_, output) => <Text label="What was found" value={pretty(output.extracted)} />),
  browser_content: onPage((_, output) => <Text label="HTML" value={text(output.html)} />),
};

function Address({ url, title }: { url: string; title: string | null }) {
  return (
    <p className="address-bar">
      {title && <strong>{title}</strong>}
      <a href={webOnly(url)} target="_blank" rel="noopener noreferrer">
        {url}
      </a>
    </p>
  );
}

function Text({ label, value }: { label: string; value: string | null }) {
  if (value === null || value === "") return null;
  return (
    <Fold label={label} lines={value.split("\n").length}>
      <pre className="code" tabIndex={0} aria-label={label}>
        {value}
      </pre>
    </Fold>
  );
}
