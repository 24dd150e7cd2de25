/** Where we are: agents, conversations, the sessions of the one that is open, and a search through it. */

import { useState } from "react";
import { Confirm } from "./confirm";
import { Icon } from "./icons";
import type { MemoryFeed } from "./memory";
import { Via } from "./messengers";
import { aboutOf, isSame, latest, newName, type AgentInfo, type ChildInfo, type Conversation, type Place } from "./places";
import { State } from "./rows";
import { Search, type Elsewhere } from "./search";
import { Rename, SessionList } from "./sessions";

type SidebarProps = {
  agents: AgentInfo[];
  place: Place;
  conversations: Conversation[];
  /** Why they could not be read. */
  trouble: string | null;
  memory: MemoryFeed;
  onGo: (place: Place) => void;
  /** Something else is to be seen in the conversation now. */
  onShown: () => void;
  /** Both return what speaks against it. */
  onRename: (name: string, title: string) => Promise<string | null>;
  onErase: (name: string) => Promise<string | null>;
  /** A hit in another conversation is wanted. */
  onElsewhere: (hit: Elsewhere) => void;
  onClose: () => void;
};

export function Sidebar(props: SidebarProps) {
  const { agents, place, conversations, memory, onGo, onShown, onRename, onErase, onElsewhere, onClose } = props;
  const [refusal, setRefusal] = useState<string | null>(null);
  const trouble = refusal ?? props.trouble;
  const [editing, setEditing] = useState<string | null>(null);
  const [words, setWords] = useState("");
  const { agent } = place;
  return (
    <nav className="sidebar" aria-label="Agents and conversations">
      <div className="bar">
        <span className="brand">everthink</span>
        <button type="button" className="ghost narrow" aria-label="Close the list" onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      <Search place={place} memory={memory} words={words} onWords={setWords} onDone={onShown} onElsewhere={onElsewhere} />
      {!words.trim() && (
        <>
          <h2>Agents</h2>
          <ul>
            {agents.map((one) => (
              <li key={one.kebab} className={one.kebab === agent ? "here" : ""}>
                <button
                  type="button"
                  className="row"
                  aria-current={one.kebab === agent ? "true" : undefined}
                  onClick={() => one.kebab !== agent && onGo({ agent: one.kebab, name: latest(one.kebab) ?? newName() })}
                >
                  {one.class}
                </button>
              </li>
            ))}
          </ul>
          <div className="head">
            <h2>Conversations</h2>
            <button
              type="button"
              className="ghost"
              aria-label="New conversation"
              title="New conversation"
              onClick={() => onGo({ agent, name: newName() })}
            >
              <Icon name="plus" />
            </button>
          </div>
          <ul className="conversations">
            {conversations.map((one) => {
              const title = one.title || "New conversation";
              const inside = one.name === place.name;
              const here = inside && !place.sub?.length;
              if (editing === one.name) {
                return (
                  <li key={one.name}>
                    <Rename
                      title={one.title}
                      label="Name of the conversation"
                      onDone={(text) => {
                        setEditing(null);
                        if (text) void onRename(one.name, text).then(setRefusal);
                      }}
                    />
                  </li>
                );
              }
              return (
                <li key={one.name} className="conversation">
                  <div className={`entry ${here ? "here" : ""}`}>
                    <button
                      type="button"
                      className="row"
                      aria-current={here ? "page" : undefined}
                      title={one.name}
                      onClick={() => onGo({ agent, name: one.name })}
                    >
                      {one.messenger && <Via met={one.messenger} />}
                      {title}
                    </button>
                    <span className="row-tools">
                      <button type="button" className="ghost small" aria-label={`Rename ${title}`} title="Rename" onClick={() => setEditing(one.name)}>
                        <Icon name="pen" size={15} />
                      </button>
                      <Confirm
                        label={`Delete ${title}`}
                        title="Delete"
                        className="ghost small"
                        question="Delete this conversation?"
                        action="Delete"
                        icon={<Icon name="bin" size={15} />}
                        onYes={() => void onErase(one.name).then(setRefusal)}
                      >
                        “{title}” is erased for everyone: its messages, its sessions and what the agent remembers of it. This
                        cannot be undone.
                      </Confirm>
                    </span>
                  </div>
                  {here && <SessionList memory={memory} onDone={onShown} />}
                  {one.children && one.children.length > 0 && (
                    <Children list={one.children} of={title} within={inside} place={{ agent, name: one.name, sub: place.sub }} onGo={onGo} />
                  )}
                </li>
              );
            })}
          </ul>
          {trouble && (
            <p className="tool-error" role="alert">
              {trouble}
            </p>
          )}
        </>
      )}
    </nav>
  );
}

type ChildrenProps = { list: ChildInfo[]; of: string; within: boolean; place: Place; onGo: (place: Place) => void };

/** The children of a conversation, folded unless one of them is open. */
function Children({ list, of, within, place, onGo }: ChildrenProps) {
  const shows = within && Boolean(place.sub?.length);
  const what = list.every((child) => child.messenger) ? "chat" : "agent";
  return (
    <details className="children" open={shows || undefined} key={String(shows)}>
      <summary aria-label={`Children of ${of}`}>{list.length === 1 ? `1 ${what}` : `${list.length} ${what}s`} below</summary>
      <ul>
        {list.map((child) => {
          const open = shows && isSame(child.path, place.sub ?? []);
          const about = aboutOf(child.preview);
          return (
            <li key={JSON.stringify(child.path)} className={open ? "here" : ""} data-depth={child.path.length}>
              <button
                type="button"
                className="row"
                aria-current={open ? "page" : undefined}
                title={`${child.class} ${child.name}`}
                onClick={() => onGo({ agent: place.agent, name: place.name, sub: child.path })}
              >
                {!child.messenger && <Icon name="agent" size={14} />}
                <span className="who">
                  {child.title}
                  {about && <span className="quiet"> {about}</span>}
                </span>
                {child.messenger && <Via met={child.messenger} />}
              </button>
              {child.status && child.status !== "completed" && <State state={child.status} />}
            </li>
          );
        })}
      </ul>
    </details>
  );
}
