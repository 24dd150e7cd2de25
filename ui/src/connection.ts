import { useAgent } from "agents/react";
import { useMemo } from "react";
import { tapped, type Tap } from "./tap";

/** The published hook, with our tap in its socket. */
export function useConnection(agent: string, name: string, tap: Tap) {
  const Socket = useMemo(() => tapped(tap), [tap]);
  return useAgent({ agent, name, WebSocket: Socket, protocol: location.protocol === "https:" ? "wss" : "ws" });
}

export type Connection = ReturnType<typeof useConnection>;
