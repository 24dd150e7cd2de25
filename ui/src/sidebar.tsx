/** Where we are: agents, conversations, the sessions of the one that is open, and a search through it. */

import { useState } from "react";
import { Icon } from "./icons";
import type { MemoryFeed } from "./memory";
import { latest, newName, type AgentInfo, type Conversation, type Place } from "./places";
import { Rename, Search, SessionList } from "./sessions";

type SidebarProps = {
  agents: AgentInfo[];
  place: Place;
  conversations: Conversation[];
  memory: MemoryFeed;
  onGo: (place: Place) => void;
  /** Something else is to be seen in the conversation now. */
  onShown: () => void;
  onRename: (name: string, title: string) => void;
  onForget: (name: string) => void;
  onClose: () => void;
};

export function Sidebar({ agents, place, conversations, memory, onGo, onShown, onRename, onForget, onClose }: SidebarProps) {
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
      <Search memory={memory} words={words} onWords={setWords} onDone={onShown} />
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
              const here = one.name === place.name;
              if (editing === one.name) {
                return (
                  <li key={one.name}>
                    <Rename
                      title={one.title}
                      label="Name of the conversation"
                      onDone={(text) => {
                        if (text) onRename(one.name, text);
                        setEditing(null);
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
                      {title}
                    </button>
                    <span className="row-tools">
                      <button type="button" className="ghost small" aria-label={`Rename ${title}`} title="Rename" onClick={() => setEditing(one.name)}>
                        <Icon name="pen" size={15} />
                      </button>
                      <button
                        type="button"
                        className="ghost small"
                        aria-label={`Remove ${title} from this list`}
                        title="Remove from this list (the agent keeps it)"
                        onClick={() => onForget(one.name)}
                      >
                        <Icon name="close" size={15} />
                      </button>
                    </span>
                  </div>
                  {here && <SessionList memory={memory} onDone={onShown} />}
                </li>
              );
            })}
          </ul>
          <p className="quiet small-print">This list is kept in your browser.</p>
        </>
      )}
    </nav>
  );
}
