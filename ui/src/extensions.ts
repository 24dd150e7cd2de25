/** The extensions of the agent, as the inspector tells them. */

export type Permissions = {
  network: string[];
  workspace: "none" | "read" | "read-write";
  context: { read: string | string[]; write: string | string[] };
  messages: "none" | "read";
  session: { send_message: boolean; metadata: boolean };
  storage: boolean;
};
export type ExtensionTool = { name: string; description: string; schema: unknown };
/** `language` and `permissions`: `null` for one that runs in the process of the server. */
export type Extension = {
  name: string;
  version: string;
  description: string;
  origin: "declared" | "code" | "model" | "package";
  language: "javascript" | "typescript" | "python" | null;
  tools: ExtensionTool[];
  hooks: string[];
  context: string[];
  permissions: Permissions | null;
  /** What it has printed last, and what went wrong with it. */
  log: string[];
};
export type Extensions = { extensions: Extension[]; failed: { what: string; error: string }[] };

/** What is asked for with a source: texts, as the form has them. */
export type Source = {
  name: string;
  version: string;
  language: string;
  source: string;
  workspace: string;
  network: string;
  messages: string;
  storage: string;
};

/** Its rights, in words; none of those that are not named. */
export function rightsOf(may: Permissions): string[] {
  const labels = (of: string | string[]) => (of === "all" ? "all blocks" : of === "own" ? "its own blocks" : (of as string[]).join(", "));
  return [
    may.workspace === "read" ? "read the files of the workspace" : may.workspace === "read-write" ? "read and write the files of the workspace" : "",
    may.network.length > 0 ? `fetch from ${may.network.join(", ")}` : "",
    may.messages === "read" ? "read what was said" : "",
    may.context.read.length > 0 ? `read of the memory: ${labels(may.context.read)}` : "",
    may.context.write.length > 0 ? `write of the memory: ${labels(may.context.write)}` : "",
    may.session.send_message ? "add messages of the user" : "",
    may.session.metadata ? "know how many messages there are" : "",
    may.storage ? "keep values of its own" : "",
  ].filter(Boolean);
}
