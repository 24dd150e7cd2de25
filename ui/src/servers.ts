/** The MCP servers of the agent: how they stand, by the frame; whose they are, by the inspector. */

import type { MCPServersState } from "agents";

export type { MCPServersState };

/** What the frame does not say. `names`: how the model calls those of its tools that it is offered. */
export type Known = { id: string; is_shared: boolean; names: Record<string, string> };

export type Tool = { name: string; called: string | null; title?: string; description?: string; schema: unknown };
export type Named = { name: string; description?: string };

export type Server = {
  id: string;
  name: string;
  url: string;
  state: string;
  error: string | null;
  authUrl: string | null;
  instructions: string | null;
  isShared: boolean | null;
  tools: Tool[];
  prompts: Named[];
  resources: (Named & { uri: string })[];
};

/** Both together, in the order of the frame. */
export function serversOf(told: MCPServersState | null, known: Known[] | null): Server[] {
  return Object.entries(told?.servers ?? {}).map(([id, server]) => {
    const more = known?.find((one) => one.id === id);
    const of = <T extends { serverId: string }>(all: T[] | undefined) => (all ?? []).filter((one) => one.serverId === id);
    return {
      id,
      name: server.name,
      url: server.server_url,
      state: server.state,
      error: server.error,
      authUrl: server.auth_url,
      instructions: server.instructions,
      isShared: more?.is_shared ?? null,
      tools: of(told?.tools).map((tool) => ({
        name: tool.name,
        called: more ? (more.names[tool.name] ?? null) : tool.name,
        title: tool.title,
        description: tool.description,
        schema: tool.inputSchema,
      })),
      prompts: of(told?.prompts).map(({ name, description }) => ({ name, description })),
      resources: of(told?.resources).map(({ name, description, uri }) => ({ name, description, uri })),
    };
  });
}
