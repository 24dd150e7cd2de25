/** The whole page: where we are on the left, the conversation, what happens underneath on the right. */

import { Component, Suspense, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { browserTools, useOffer } from "./browser-tools";
import { Chat } from "./chat";
import { Confirm } from "./confirm";
import { useConnection } from "./connection";
import { Icon } from "./icons";
import { TABS, type Tab } from "./inspector";
import { JournalFeed, useFeed } from "./journal";
import { nameOf, useMemory } from "./memory";
import { Via } from "./messengers";
import {
  addressOf,
  className,
  fetchAgents,
  isSame,
  latest,
  newName,
  placeFromUrl,
  urlOf,
  useConversations,
  type AgentInfo,
  type ChildInfo,
  type Hop,
  type Place,
} from "./places";
import { RunsProvider } from "./runs";
import type { Elsewhere } from "./search";
import type { MCPServersState } from "./servers";
import { Sidebar } from "./sidebar";
import { Tap, useTap } from "./tap";
import { useTheme } from "./theme";

/** Which tab of the inspector is open is part of the address, so it is again after a reload. */
function tabFromUrl(): Tab | null {
  const wanted = new URLSearchParams(location.search).get("inspect");
  return wanted === null ? null : (TABS.find((tab) => tab === wanted) ?? "turns");
}

function urlWithTab(tab: Tab | null): string {
  const query = new URLSearchParams(location.search);
  if (tab) query.set("inspect", tab);
  else query.delete("inspect");
  return `${location.pathname}?${query}`;
}

const wide = () => matchMedia("(min-width: 900px)").matches;

export function App() {
  const [agents, setAgents] = useState<AgentInfo[] | null>(null);
  const [place, setPlace] = useState<Partial<Place>>(placeFromUrl);
  const [listing, setListing] = useState(wide);
  const [offers, toggleOffer] = useOffer();
  const [tab, setTab] = useState(tabFromUrl);

  useEffect(() => {
    void fetchAgents().then(setAgents);
    const back = () => setPlace(placeFromUrl());
    addEventListener("popstate", back);
    return () => removeEventListener("popstate", back);
  }, []);

  const agent = place.agent ?? agents?.[0]?.kebab;
  const name = place.name ?? (agent && (latest(agent) ?? newName()));
  const known = useConversations(agent, name);
  const [wanted, setWanted] = useState<Elsewhere | null>(null);
  const sub = place.sub ?? NO_CHILD;
  const address = addressOf({ agent: agent ?? "", name: name ?? "", sub });
  const feed = useMemo(() => new JournalFeed(address), [address]);

  const go = (next: Place) => {
    history.pushState(null, "", urlOf(next));
    setPlace(next);
    if (!wide()) setListing(false);
  };

  const inspect = (next: Tab | null) => {
    history.replaceState(null, "", urlWithTab(next));
    setTab(next);
  };

  // The address always says where we are, so that a reload or a shared link leads back here.
  useEffect(() => {
    if (!agent || !name) return;
    if (place.agent !== agent || place.name !== name) {
      history.replaceState(null, "", urlOf({ agent, name, sub }));
      setPlace({ agent, name, sub });
    }
  }, [agent, name, place]);

  // A child that has just begun is not listed yet, and how its run ends is told to its parent alone.
  const current = known.list.find((one) => one.name === name);
  const works = sub.length > 0 && (current?.children ?? []).some((one) => one.status === "running");
  useEffect(() => {
    if (sub.length > 0) void known.refresh();
    const timer = works ? setInterval(() => void known.refresh(), LOOK_EVERY) : undefined;
    return () => clearInterval(timer);
  }, [address, works]);

  // Over the conversation the list takes the focus, and gives it back.
  const listed = useRef(listing);
  useEffect(() => {
    if (listed.current === listing) return;
    listed.current = listing;
    if (wide()) return;
    document.querySelector<HTMLElement>(listing ? ".sidebar .narrow" : ".chat .bar button")?.focus();
  }, [listing]);

  useEffect(() => {
    const close = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || wide()) return;
      setListing(false);
      inspect(null);
    };
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, []);

  if (!agent || !name) {
    if (agents === null) return <p className="alone quiet">Loading…</p>;
    return <WhichAgent onPick={(chosen) => go({ agent: chosen, name: latest(chosen) ?? newName() })} />;
  }

  const infos = agents?.some((one) => one.kebab === agent)
    ? agents
    : [...(agents ?? []), { class: className(agent), kebab: agent }];
  const crumbs = crumbsOf({ agent, name, sub }, current?.title || "New conversation", current?.children ?? []);
  const own = infos.find((one) => one.kebab === agent) ?? { class: agent, kebab: agent };
  const info = sub.length === 0 ? own : childInfo(infos, sub.at(-1)!, current?.children ?? []);

  return (
    <div className={`page ${listing ? "listing" : ""} ${tab ? "inspecting" : ""}`}>
      <a className="skip" href="#message">
        Skip to the message field
      </a>
      {listing && (
        <>
          <Sidebar
            agents={infos}
            place={{ agent, name, sub }}
            conversations={known.list}
            trouble={known.trouble}
            memory={feed.memory}
            onGo={go}
            onShown={() => !wide() && setListing(false)}
            onRename={known.rename}
            onErase={async (gone) => {
              // Its own tab leaves first: whoever stays is told that the conversation is gone.
              if (gone === name) go({ agent, name: known.list.find((one) => one.name !== gone)?.name ?? newName() });
              return known.erase(gone);
            }}
            onElsewhere={(hit) => {
              setWanted(hit);
              go({ agent, name: hit.conversation });
            }}
            onClose={() => setListing(false)}
          />
          <button type="button" className="veil" aria-label="Close the list" tabIndex={-1} onClick={() => setListing(false)} />
        </>
      )}
      {known.entry?.open === false ? (
        <Closed
          key={`${agent}/${name}`}
          agent={own.class}
          name={name}
          yours={known.entry.yours ?? ""}
          onList={() => setListing(!listing)}
          onPick={(chosen) => go({ agent, name: chosen })}
        />
      ) : (
        <Room
          key={`${address}/${offers}`} // tools belong to a connection: another choice, another connection
          place={{ agent, name, sub }}
          feed={feed}
          info={info}
          crumbs={crumbs}
          onGo={go}
          listing={listing}
          onList={setListing}
          offers={offers}
          onOffer={toggleOffer}
          tab={tab}
          onTab={inspect}
          wanted={wanted?.conversation === name && sub.length === 0 ? wanted : null}
          onFound={() => setWanted(null)}
          onRuns={() => void known.refresh()}
          onFirst={(text) => sub.length === 0 && known.begun(name, text)}
          onOver={() => {
            void known.refresh();
            if (!info.stand_in) void fetchAgents().then((found) => found.length > 0 && setAgents(found));
          }}
        />
      )}
    </div>
  );
}

const NO_CHILD: Hop[] = [];
/** Milliseconds. */
const LOOK_EVERY = 2000;

/** The way to where we are: the conversation, and the children down to the one that is open. */
type Crumb = { title: string; place: Place };

function crumbsOf({ agent, name, sub = [] }: Place, title: string, children: ChildInfo[]): Crumb[] {
  const found: Crumb[] = [{ title, place: { agent, name } }];
  sub.forEach((hop, at) => {
    const path = sub.slice(0, at + 1);
    const known = children.find((one) => isSame(one.path, path));
    found.push({ title: known?.title ?? className(hop.agent), place: { agent, name, sub: path } });
  });
  return found;
}

function childInfo(infos: AgentInfo[], hop: Hop, children: ChildInfo[]): AgentInfo {
  const known = children.find(({ path }) => path.at(-1)?.agent === hop.agent);
  return infos.find((one) => one.kebab === hop.agent) ?? { class: known?.class ?? className(hop.agent), kebab: hop.agent };
}

type RoomProps = {
  place: Place;
  feed: JournalFeed;
  info: AgentInfo;
  crumbs: Crumb[];
  onGo: (place: Place) => void;
  listing: boolean;
  onList: (open: boolean) => void;
  offers: boolean;
  onOffer: () => void;
  tab: Tab | null;
  onTab: (tab: Tab | null) => void;
  /** A message in it that somebody looks for. */
  wanted: Elsewhere | null;
  onFound: () => void;
  onFirst: (text: string) => void;
  /** A turn is over. */
  onOver: () => void;
  /** A run of a child began, or ended. */
  onRuns: () => void;
};

function Room(props: RoomProps) {
  const { place, feed, info, crumbs, onGo, listing, onList, offers, onOffer, tab, onTab, onFirst, onOver, onRuns } = props;
  const { wanted, onFound } = props;
  const [tap] = useState(() => new Tap());
  const [servers, setServers] = useState<MCPServersState | null>(null);
  const agent = useConnection(place, tap, setServers);
  const title = crumbs.at(-1)?.title ?? "";
  useEffect(() => {
    document.title = `${title} · ${info.class}`;
  }, [title, info.class]);
  const { sessions } = useMemory(feed.memory);
  useEffect(() => {
    if (!wanted || !sessions) return;
    void feed.memory.goTo(wanted);
    onFound();
  }, [wanted, sessions]);

  const bar = (clear: () => void, empty: boolean) => (
    <header className="bar">
      <button
        type="button"
        className="ghost"
        aria-label="Conversations"
        title="Conversations"
        aria-expanded={listing}
        onClick={() => onList(!listing)}
      >
        <Icon name="menu" />
      </button>
      <div className="where">
        <Crumbs crumbs={crumbs} onGo={onGo} />
        <Connection tap={tap} feed={feed} refused={agent.connectionError !== null} agent={info.class} />
      </div>
      <ClearButton disabled={empty} onClear={clear} />
      <button
        type="button"
        className="ghost"
        aria-label="Tools of this browser"
        title={`${offers ? "Offered to" : "Not offered to"} the agent: ${Object.keys(browserTools).join(", ")}`}
        aria-pressed={offers}
        onClick={onOffer}
      >
        <Icon name="tool" />
      </button>
      <ThemeButton />
      <button
        type="button"
        className="ghost"
        aria-label="Inspector"
        title="Inspector"
        aria-pressed={tab !== null}
        onClick={() => onTab(tab ? null : "turns")}
      >
        <Icon name="panel" />
      </button>
    </header>
  );
  return (
    <Fence>
      <RunsProvider agent={agent} place={place} tap={tap} feed={feed} onGo={onGo} onRuns={onRuns}>
        <Suspense fallback={<main className="chat">{bar(() => {}, true)}<p className="alone quiet">Loading the conversation…</p></main>}>
          <Chat
            agent={agent}
            place={place}
            info={info}
            tap={tap}
            feed={feed}
            offers={offers}
            servers={servers}
            tab={tab}
            onTab={onTab}
            onGo={onGo}
            onFirst={onFirst}
            onOver={onOver}
            bar={bar}
          />
        </Suspense>
      </RunsProvider>
    </Fence>
  );
}

/** Where we are; in the conversation of a child also the way back. */
function Crumbs({ crumbs, onGo }: { crumbs: Crumb[]; onGo: (place: Place) => void }) {
  const above = crumbs.slice(0, -1);
  const heading = <h1>{crumbs.at(-1)?.title}</h1>;
  if (above.length === 0) return heading;
  return (
    <nav className="crumbs" aria-label="The way back">
      {above.map(({ title, place }) => (
        <span key={addressOf(place)}>
          <button type="button" className="link" title={title} onClick={() => onGo(place)}>
            {title}
          </button>
          <Icon name="chevron" size={13} />
        </span>
      ))}
      {heading}
    </nav>
  );
}

type ConnectionProps = { tap: Tap; feed: JournalFeed; refused: boolean; agent: string };

function Connection({ tap, feed, refused, agent }: ConnectionProps) {
  const { line, lost, signedOut } = useTap(tap);
  const { sessions, live } = useMemory(feed.memory);
  const met = useFeed(feed).journal?.messenger;
  const session = sessions && sessions.sessions.length > 1 ? nameOf(live) : null;
  const [tone, text] = signedOut
    ? ["bad", "signed out"]
    : refused
      ? ["bad", "closed"]
      : line === "open"
        ? ["good", "connected"]
        : lost
          ? ["wait", "reconnecting"]
          : ["wait", "connecting"];
  return (
    <p className="connection" data-line={line}>
      <span className={`dot ${tone}`} aria-hidden="true" />
      <span>
        {agent} · {text}
        {session && ` · ${session}`}
      </span>
      {met && <Via met={met} chat />}
    </p>
  );
}

function ThemeButton() {
  const [theme, next] = useTheme();
  return (
    <button type="button" className="ghost" aria-label={`Theme: ${theme}`} title={`Theme: ${theme}`} onClick={next}>
      <Icon name={theme} />
    </button>
  );
}

function ClearButton({ disabled, onClear }: { disabled: boolean; onClear: () => void }) {
  return (
    <Confirm
      label="Clear the conversation"
      className="ghost"
      disabled={disabled}
      question="Clear this conversation?"
      action="Clear"
      icon={<Icon name="bin" />}
      onYes={onClear}
    >
      The agent forgets every message in it, for everyone. This cannot be undone.
    </Confirm>
  );
}

function WhichAgent({ onPick }: { onPick: (kebab: string) => void }) {
  const [text, setText] = useState("");
  return (
    <main className="alone">
      <h1>Which agent?</h1>
      <p>
        The server did not say which agents it has. Give the name of one as it is in its address, such as{" "}
        <code>my-assistant</code>.
      </p>
      <form
        className="composer"
        onSubmit={(event) => {
          event.preventDefault();
          if (text.trim()) onPick(text.trim());
        }}
      >
        <input aria-label="Agent" value={text} onChange={(event) => setText(event.target.value)} autoFocus />
        <button type="submit" className="primary" disabled={!text.trim()}>
          Open
        </button>
      </form>
    </main>
  );
}

type ClosedProps = { agent: string; name: string; yours: string; onList: () => void; onPick: (name: string) => void };

/** The app does not let this person into a conversation of that name: names of new ones are made up here. */
function Closed({ agent, name, yours, onList, onPick }: ClosedProps) {
  const [text, setText] = useState(yours);
  return (
    <main className="chat">
      <header className="bar">
        <button type="button" className="ghost" aria-label="Conversations" title="Conversations" onClick={onList}>
          <Icon name="menu" />
        </button>
        <div className="where">
          <h1>403 Forbidden</h1>
        </div>
      </header>
      <div className="alone" role="alert">
        <p>
          The app (<code>authorize</code>) does not let you into <code>{name}</code> of {agent}. Nothing was sent there.
        </p>
        <p>Which conversation may you enter? {yours && "Perhaps the one that is called like you."}</p>
        <form
          className="composer"
          onSubmit={(event) => {
            event.preventDefault();
            if (text.trim()) onPick(text.trim());
          }}
        >
          <input aria-label="Conversation" value={text} onChange={(event) => setText(event.target.value)} autoFocus />
          <button type="submit" className="primary" disabled={!text.trim()}>
            Open
          </button>
        </form>
      </div>
    </main>
  );
}

class Fence extends Component<{ children: ReactNode }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: unknown) {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <main className="alone" role="alert">
        <h1>The page could not show this conversation</h1>
        <p>{this.state.error.message}</p>
        <button type="button" className="primary" onClick={() => location.reload()}>
          Reload
        </button>
      </main>
    );
  }
}
