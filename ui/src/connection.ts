import type { MCPServersState } from "agents";
import { useAgent } from "agents/react";
import { useMemo } from "react";
import type { Place } from "./places";
import { tapped, type Tap } from "./tap";

/** The published hook, with our tap in its socket. */
export function useConnection(place: Place, tap: Tap, onMcpUpdate?: (told: MCPServersState) => void) {
  const Socket = useMemo(() => tapped(tap), [tap]);
  const protocol = location.protocol === "https:" ? "wss" : "ws";
  return useAgent({ agent: place.agent, name: place.name, sub: place.sub, WebSocket: Socket, protocol, onMcpUpdate });
}

export type Connection = ReturnType<typeof useConnection>;
