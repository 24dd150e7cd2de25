/** The whole page: where we are on the left, the conversation, what happens underneath on the right. */

import { Component, Suspense, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { browserTools, useOffer } from "./browser-tools";
import { Chat } from "./chat";
import { Confirm } from "./confirm";
import { useConnection } from "./connection";
import { Icon } from "./icons";
import { TABS, type Tab } from "./inspector";
import { JournalFeed } from "./journal";
import { nameOf, useMemory } from "./memory";
import {
  className,
  fetchAgents,
  latest,
  newName,
  placeFromUrl,
  urlOf,
  useConversations,
  visited,
  type AgentInfo,
  type Place,
} from "./places";
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
  const feed = useMemo(() => new JournalFeed(agent ?? "", name ?? ""), [agent, name]);

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
      history.replaceState(null, "", urlOf({ agent, name }));
      setPlace({ agent, name });
    }
    // One that may not be entered is not where we were.
    if (known.entry ? known.entry.open : known.trouble) visited({ agent, name });
  }, [agent, name, place, known.entry?.open, known.trouble]);

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
  const info = infos.find((one) => one.kebab === agent) ?? { class: agent, kebab: agent };
  const current = known.list.find((one) => one.name === name);

  return (
    <div className={`page ${listing ? "listing" : ""} ${tab ? "inspecting" : ""}`}>
      <a className="skip" href="#message">
        Skip to the message field
      </a>
      {listing && (
        <>
          <Sidebar
            agents={infos}
            place={{ agent, name }}
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
          agent={info.class}
          name={name}
          yours={known.entry.yours ?? ""}
          onList={() => setListing(!listing)}
          onPick={(chosen) => go({ agent, name: chosen })}
        />
      ) : (
        <Room
          key={`${agent}/${name}/${offers}`} // tools belong to a connection: another choice, another connection
          agent={agent}
          name={name}
          feed={feed}
          info={info}
          title={current?.title || "New conversation"}
          listing={listing}
          onList={setListing}
          offers={offers}
          onOffer={toggleOffer}
          tab={tab}
          onTab={inspect}
          wanted={wanted?.conversation === name ? wanted : null}
          onFound={() => setWanted(null)}
          onFirst={(text) => known.begun(name, text)}
          onOver={() => {
            void known.refresh();
            if (!info.stand_in) void fetchAgents().then((found) => found.length > 0 && setAgents(found));
          }}
        />
      )}
    </div>
  );
}

type RoomProps = {
  agent: string;
  name: string;
  feed: JournalFeed;
  info: AgentInfo;
  title: string;
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
};

function Room(props: RoomProps) {
  const { agent: kebab, name, feed, info, title, listing, onList, offers, onOffer, tab, onTab, onFirst, onOver } = props;
  const { wanted, onFound } = props;
  const [tap] = useState(() => new Tap());
  const [servers, setServers] = useState<MCPServersState | null>(null);
  const agent = useConnection(kebab, name, tap, setServers);
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
        <h1>{title}</h1>
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
      <Suspense fallback={<main className="chat">{bar(() => {}, true)}<p className="alone quiet">Loading the conversation…</p></main>}>
        <Chat
          agent={agent}
          info={info}
          tap={tap}
          feed={feed}
          offers={offers}
          servers={servers}
          tab={tab}
          onTab={onTab}
          onFirst={onFirst}
          onOver={onOver}
          bar={bar}
        />
      </Suspense>
    </Fence>
  );
}

type ConnectionProps = { tap: Tap; feed: JournalFeed; refused: boolean; agent: string };

function Connection({ tap, feed, refused, agent }: ConnectionProps) {
  const { line, lost, signedOut } = useTap(tap);
  const { sessions, live } = useMemory(feed.memory);
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
