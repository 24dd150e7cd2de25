/** The inspector's Servers tab: the MCP servers of the agent, how each of them stands and what it offers. */

import { useEffect, useId, useState, type FormEvent, type ReactNode } from "react";
import { Confirm } from "./confirm";
import { Icon } from "./icons";
import type { JournalFeed } from "./journal";
import { Address } from "./question";
import { Fact, Value } from "./rows";
import { serversOf, type Known, type MCPServersState, type Server, type Tool } from "./servers";

const STATES: Record<string, [word: string, tone: string]> = {
  ready: ["ready", "good"],
  failed: ["failed", "bad"],
  authenticating: ["waits for a person", "wait"],
  "not-connected": ["not connected", ""],
};
const UNDER_WAY: [string, string] = ["connecting", "wait"]; // however far it has come

export function ServersPanel({ feed, told }: { feed: JournalFeed; told: MCPServersState | null }) {
  const known = useKnown(feed, told);
  if (!told) return <p className="quiet">The server has not said yet which MCP servers there are.</p>;
  const servers = serversOf(told, known);
  return (
    <div className="servers">
      {servers.length === 0 && (
        <p className="quiet">
          This agent has no MCP servers: an app names them in <code>App(mcp_servers=…)</code>, an agent adds its own with{" "}
          <code>add_mcp_server()</code> (see docs/howto-mcp.md, and{" "}
          <a href="https://modelcontextprotocol.io" target="_blank" rel="noopener noreferrer">
            what MCP is
          </a>
          ).
        </p>
      )}
      <ol className="entries" aria-label="MCP servers">
        {servers.map((server) => (
          <ServerView key={server.id} server={server} onRemove={() => feed.removeServer(server.id)} />
        ))}
      </ol>
      {feed.status === "ready" && <AddServer onAdd={feed.addServer} />}
    </div>
  );
}

/** What the inspector knows beside the frame, asked for again whenever that changes. */
function useKnown(feed: JournalFeed, told: MCPServersState | null): Known[] | null {
  const [known, setKnown] = useState<Known[] | null>(null);
  useEffect(() => {
    let late = false;
    void feed.servers().then(({ value }) => !late && value && setKnown(value));
    return () => {
      late = true;
    };
  }, [feed, told]);
  return known;
}

function ServerView({ server, onRemove }: { server: Server; onRemove: () => Promise<string | null> }) {
  const [trouble, setTrouble] = useState<string | null>(null);
  const [word, tone] = STATES[server.state] ?? UNDER_WAY;
  const offered = server.tools.filter((tool) => tool.called !== null).length;
  const counts = [count(offered, "tool"), count(server.prompts.length, "prompt"), count(server.resources.length, "resource")];
  return (
    <li data-server={server.name} data-state={server.state}>
      <details>
        <summary>
          <span className="first">
            <span className="name">{server.name}</span>
            <span className={`state ${tone}`}>{word}</span>
            <span className="when">{server.isShared === null ? "" : server.isShared ? "of the app" : "of this agent"}</span>
          </span>
          <span className="second">{[server.url, ...counts].filter(Boolean).join(" · ")}</span>
        </summary>
        <dl className="facts">
          <Fact name="Address">{server.url}</Fact>
          <Fact name="Id">{server.id}</Fact>
        </dl>
        {server.instructions && <Value name="What it says about itself, which is not put into the prompt" value={server.instructions} />}
        <Offers what="Tools" none="No tools.">
          {server.tools.map((tool) => (
            <ToolView key={tool.name} tool={tool} />
          ))}
        </Offers>
        <Offers what="Prompts">
          {server.prompts.map((prompt) => (
            <li key={prompt.name}>
              <code>{prompt.name}</code> <span className="quiet">{prompt.description}</span>
            </li>
          ))}
        </Offers>
        <Offers what="Resources">
          {server.resources.map((resource) => (
            <li key={resource.uri}>
              <code>{resource.uri}</code> <span className="quiet">{resource.description || resource.name}</span>
            </li>
          ))}
        </Offers>
        {server.isShared === false && (
          <Confirm
            label={`Remove ${server.name}`}
            className="small"
            question={`Remove ${server.name}?`}
            action="Remove"
            icon={
              <>
                <Icon name="bin" size={15} /> Remove
              </>
            }
            onYes={() => void onRemove().then(setTrouble)}
          >
            The agent loses its tools, and forgets how it was let in.
          </Confirm>
        )}
      </details>
      {server.error && <p className="tool-error">{server.error}</p>}
      {server.authUrl && <Address url={server.authUrl}>Authorise at</Address>}
      {trouble && (
        <p className="tool-error" role="alert">
          {trouble}
        </p>
      )}
    </li>
  );
}

const count = (number: number, word: string): string => (number === 0 ? "" : number === 1 ? `1 ${word}` : `${number} ${word}s`);

function Offers({ what, none, children }: { what: string; none?: string; children: ReactNode[] }) {
  const id = useId();
  if (children.length === 0) return none ? <p className="quiet">{none}</p> : null;
  return (
    <div>
      <h4 id={id}>{what}</h4>
      <ul className="offers" aria-labelledby={id}>
        {children}
      </ul>
    </div>
  );
}

function ToolView({ tool }: { tool: Tool }) {
  const renamed = tool.called !== null && tool.called !== tool.name;
  return (
    <li data-offered={tool.called ?? ""}>
      <details className="fold">
        <summary>
          <code>{tool.called ?? tool.name}</code>
          {tool.called === null && <span className="quiet">not offered to the model</span>}
        </summary>
        {renamed && (
          <p className="quiet">
            The model calls it so; the server <code>{tool.name}</code>.
          </p>
        )}
        {tool.description && <p className="said">{tool.description}</p>}
        <Value name="Input" value={tool.schema} />
      </details>
    </li>
  );
}

function AddServer({ onAdd }: { onAdd: (name: string, url: string) => Promise<string | null> }) {
  const [name, setName] = useState("");
  const [url, setUrl] = useState("");
  const [state, setState] = useState<{ working: boolean; trouble: string | null }>({ working: false, trouble: null });
  const add = async (event: FormEvent) => {
    event.preventDefault();
    if (state.working) return;
    const problem = !name.trim() ? "Give it a name." : /^https?:\/\/\S+$/i.test(url.trim()) ? null : "The address begins with https:// or http://.";
    if (problem) return setState({ working: false, trouble: problem });
    setState({ working: true, trouble: null });
    const trouble = await onAdd(name.trim(), url.trim());
    setState({ working: false, trouble });
    if (trouble) return;
    setName("");
    setUrl("");
  };
  return (
    <form className="add-server" noValidate aria-label="Add a server" onSubmit={(event) => void add(event)}>
      <h3>Add a server</h3>
      <label>
        Name
        <input value={name} maxLength={64} autoComplete="off" onChange={(event) => setName(event.target.value)} />
      </label>
      <label>
        Address
        <input
          type="url"
          value={url}
          placeholder="https://…/mcp"
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => setUrl(event.target.value)}
        />
      </label>
      <button type="submit" disabled={state.working}>
        {state.working ? "Connecting…" : "Add"}
      </button>
      <p className="quiet">Its tools see what the model gives them. Add those alone that you trust.</p>
      {state.trouble && (
        <p className="tool-error" role="alert">
          {state.trouble}
        </p>
      )}
    </form>
  );
}
