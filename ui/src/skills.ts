/** The skills of the agent, as the inspector tells them. */

export type SkillSource = { id: string; fingerprint: string; skills: string[]; error: string | null };
export type Skill = {
  name: string;
  description: string;
  source: string | null;
  version: string | null;
  license: string | null;
  compatibility: string | null;
  allowedTools: string | null;
  active: boolean;
};
export type Diagnostic = { level: "note" | "warning" | "error"; skill: string | null; source: string | null; what: string; nextStep: string };
/** `tools`: `null` when they are chosen for each run; `network`: in words, `null` for none. */
export type Rights = { workspace: "none" | "read" | "read-write"; network: string | null; tools: string[] | null; timeout: number };
/** `rights`: `null` for a runner of the app's own, of which nothing is known. */
export type Scripts = { runner: string; rights: Rights | null };

export type Skills = {
  sources: SkillSource[];
  skills: Skill[];
  diagnostics: Diagnostic[];
  /** By name, in the order of their activation, also those that no source has any more. */
  active: string[];
  scripts: Scripts | null;
  /** Why the agent has none. */
  problem: string | null;
};

export type Resource = { path: string; kind: "reference" | "script" | "asset" | "file"; size: number | null; mediaType: string | null };
export type Instructions = { name: string; body: string; isCut: boolean; metadata: Record<string, unknown>; resources: Resource[] };
/** `text`: its beginning, all of it unless it is cut; `null` when it is none. */
export type SkillFile = { path: string; kind: Resource["kind"]; size: number; mediaType: string | null; text: string | null; isCut: boolean };
/** By language: `null` when something of it just ran, words when not. */
export type Languages = Record<string, string | null>;
