/**
 * The fields of a form, from the JSON schema that a tool gave with its question; and what was filled in, as the
 * tool gets it. Pure. A schema is a stranger's: what is not understood is asked for as JSON, and no pattern of
 * it is run.
 */

type Json = Record<string, unknown>;

export type Kind = "text" | "number" | "boolean" | "choice" | "choices" | "json";
export type Option = { value: unknown; label: string };
/** What stands in a field: text, a tick, the place of the chosen option, the places of several. */
export type Draft = string | boolean | number | null | number[];

export type Field = {
  name: string;
  label: string;
  help: string;
  kind: Kind;
  required: boolean;
  /** What the tool gets when nothing is filled in; `undefined`: the field is left out. */
  blank: null | undefined;
  options: Option[];
  /** Of a text: `email`, `uri`, `date`, `date-time`. Of a number: `integer`. */
  format: string;
  /** The bounds of a number, of the length of a text, of how many are chosen. */
  least: number | null;
  most: number | null;
  initial: Draft;
};

const DEEPEST = 8;
const EMAIL = /^[^\s@]+@[^\s@]+$/;
const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;

// --- from the schema

export function fieldsOf(schema: unknown): Field[] {
  const root = object(schema);
  const required = new Set(list(root.required));
  return Object.entries(object(root.properties)).map(([name, given]) => fieldOf(name, given, root, required.has(name)));
}

function fieldOf(name: string, given: unknown, root: Json, required: boolean): Field {
  const { schema, nullable } = plain(given, root);
  const kind = kindOf(schema, root);
  const options = kind === "choice" ? optionsOf(schema) : kind === "choices" ? optionsOf(plain(schema.items, root).schema) : [];
  const bounds: Partial<Record<Kind, [string, string]>> = {
    text: ["minLength", "maxLength"],
    number: ["minimum", "maximum"],
    choices: ["minItems", "maxItems"],
  };
  const [least, most] = (bounds[kind] ?? []).map((key) => number(schema[key]));
  const field: Field = {
    name,
    label: text(object(given).title) || text(schema.title) || readable(name),
    help: text(object(given).description) || text(schema.description),
    kind,
    required: required && !nullable,
    blank: required && nullable ? null : undefined,
    options,
    format: kind === "number" ? (schema.type === "integer" ? "integer" : "") : text(schema.format),
    least: least ?? null,
    most: most ?? null,
    initial: null,
  };
  return { ...field, initial: initialOf(field, object(given).default ?? schema.default) };
}

/** A schema behind its reference, without the choice of nothing. */
function plain(given: unknown, root: Json, depth = 0): { schema: Json; nullable: boolean } {
  const schema = object(given);
  if (depth > DEEPEST) return { schema: {}, nullable: false };
  if (typeof schema.$ref === "string") return plain(behind(schema.$ref, root), root, depth + 1);
  const types = list(schema.type);
  if (types.includes("null")) {
    const rest = types.filter((type) => type !== "null");
    return { schema: { ...schema, type: rest.length === 1 ? rest[0] : rest }, nullable: true };
  }
  const choices = list(schema.anyOf ?? schema.oneOf).map(object);
  const some = choices.filter((one) => one.type !== "null");
  if (some.length === choices.length || some.length !== 1) return { schema, nullable: false };
  return { schema: { ...plain(some[0], root, depth + 1).schema, ...only(schema, "title", "description") }, nullable: true };
}

function behind(reference: string, root: Json): unknown {
  if (!reference.startsWith("#/")) return {};
  return reference
    .slice(2)
    .split("/")
    .reduce<unknown>((at, key) => (Object.hasOwn(object(at), key) ? object(at)[key] : {}), root);
}

function kindOf(schema: Json, root: Json): Kind {
  if (optionsOf(schema).length > 0) return "choice";
  if (schema.type === "array" && optionsOf(plain(schema.items, root).schema).length > 0) return "choices";
  if (schema.type === "string") return "text";
  if (schema.type === "number" || schema.type === "integer") return "number";
  return schema.type === "boolean" ? "boolean" : "json";
}

function optionsOf(schema: Json): Option[] {
  const names = list(schema.enumNames);
  const values = list(schema.enum);
  if (values.length > 0) return values.map((value, index) => ({ value, label: text(names[index]) || shown(value) }));
  const choices = list(schema.oneOf ?? schema.anyOf).map(object);
  if (choices.length === 0 || !choices.every((one) => "const" in one)) return [];
  return choices.map((one) => ({ value: one.const, label: text(one.title) || shown(one.const) }));
}

function initialOf(field: Field, given: unknown): Draft {
  const place = (value: unknown) => field.options.findIndex((option) => same(option.value, value));
  switch (field.kind) {
    case "boolean":
      return given === true;
    case "choice":
      return place(given) < 0 ? null : place(given);
    case "choices":
      return list(given).map(place).filter((at) => at >= 0);
    case "number":
      return number(given) === null ? "" : String(given);
    case "text":
      return field.format === "date-time" ? localTime(text(given)) : text(given);
    case "json":
      return given === undefined ? "" : JSON.stringify(given, null, 2);
  }
}

// --- what was filled in

export type Read = { value: unknown; problem: string | null };

/** What stands in a field as the tool gets it; `undefined` without a problem is left out. */
export function read(field: Field, draft: Draft): Read {
  if (field.kind === "boolean") return fine(draft === true);
  if (field.kind === "choice") return readChoice(field, draft);
  if (field.kind === "choices") return readChoices(field, draft);
  const written = typeof draft === "string" ? draft : "";
  if (written.trim() === "") return field.required ? wrong("Please fill this in.") : fine(field.blank);
  if (field.kind === "number") return readNumber(field, written.trim());
  return field.kind === "json" ? readJson(written) : readText(field, written);
}

function readChoice(field: Field, draft: Draft): Read {
  const option = typeof draft === "number" ? field.options[draft] : undefined;
  if (option) return fine(option.value);
  return field.required ? wrong("Please choose one.") : fine(field.blank);
}

function readChoices(field: Field, draft: Draft): Read {
  const chosen = Array.isArray(draft) ? draft.toSorted((a, b) => a - b) : [];
  if (chosen.length === 0 && !field.required) return fine(field.blank);
  if (field.least !== null && chosen.length < field.least) return wrong(`Please choose at least ${field.least}.`);
  if (field.most !== null && chosen.length > field.most) return wrong(`Please choose at most ${field.most}.`);
  return fine(chosen.map((at) => field.options[at]?.value));
}

function readNumber({ format, least, most }: Field, written: string): Read {
  const value = Number(written);
  if (!NUMBER.test(written) || !Number.isFinite(value)) return wrong("This is not a number.");
  if (format === "integer" && !Number.isSafeInteger(value)) return wrong("This is not a whole number.");
  if (least !== null && value < least) return wrong(`It is at least ${least}.`);
  if (most !== null && value > most) return wrong(`It is at most ${most}.`);
  return fine(value);
}

function readText({ format, least, most }: Field, written: string): Read {
  const length = [...written].length;
  if (least !== null && length < least) return wrong(`It has at least ${count(least)}; this has ${length}.`);
  if (most !== null && length > most) return wrong(`It has at most ${count(most)}; this has ${length}.`);
  const value = format === "date-time" ? worldTime(written) : written.trim();
  if (value === null) return wrong("This is no time.");
  if (format === "email" && !EMAIL.test(value)) return wrong("This is no e-mail address.");
  if (format === "uri" && !URL.canParse(value)) return wrong("This is no web address: it begins with https://, for example.");
  if (format === "date" && !isDate(value)) return wrong("This is no date.");
  return fine(format ? value : written);
}

function readJson(written: string): Read {
  try {
    return fine(JSON.parse(written));
  } catch {
    return wrong("This is no JSON.");
  }
}

/** Everything that was filled in, and what is wrong with it, field by field. */
export function contentOf(fields: Field[], drafts: Draft[]): { content: Json; problems: (string | null)[] } {
  const found = fields.map((field, at) => read(field, drafts[at] ?? null));
  const given = fields.flatMap((field, at) => (found[at]?.value === undefined ? [] : [[field.name, found[at].value] as const]));
  return { content: Object.fromEntries(given), problems: found.map(({ problem }) => problem) };
}

/** A value that was given, for people: by the name of its option, if it has one. */
export function said(field: Field | undefined, value: unknown): string {
  if (field?.kind === "choices" && Array.isArray(value)) return value.map((one) => label(field, one)).join(", ") || "none";
  if (field?.kind === "choice") return label(field, value);
  if (field?.format === "date-time" && typeof value === "string" && value) return new Date(value).toLocaleString("en-GB");
  return typeof value === "boolean" ? (value ? "Yes" : "No") : shown(value);
}

/** Between what it has to be, when that is worth saying before anything is wrong. */
export function bounds({ kind, least, most }: Field): string {
  if (kind !== "number" && kind !== "choices") return "";
  const words = least !== null && most !== null ? `${least} to ${most}` : least !== null ? `at least ${least}` : most !== null ? `at most ${most}` : "";
  return kind === "choices" && words ? `Choose ${words}.` : words && words.replace(/^./, (letter) => letter.toUpperCase());
}

// --- pieces

const fine = (value: unknown): Read => ({ value, problem: null });
const wrong = (problem: string): Read => ({ value: undefined, problem });
const label = (field: Field, value: unknown) => field.options.find((one) => same(one.value, value))?.label ?? shown(value);
const count = (characters: number) => (characters === 1 ? "1 character" : `${characters} characters`);
const object = (value: unknown): Json => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {});
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const number = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
const shown = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));
const same = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other);
const only = (schema: Json, ...keys: string[]): Json =>
  Object.fromEntries(keys.filter((key) => key in schema).map((key) => [key, schema[key]]));

/** `first_name`, `firstName` → First name */
function readable(name: string): string {
  const words = name.replace(/([a-z\d])([A-Z])/g, "$1 $2").replace(/[_-]+/g, " ").trim().toLowerCase();
  return words.replace(/^./, (letter) => letter.toUpperCase()) || name;
}

function isDate(value: string): boolean {
  const date = new Date(`${value}T00:00:00Z`);
  return /^\d{4}-\d\d-\d\d$/.test(value) && !Number.isNaN(date.getTime()) && date.toISOString().startsWith(value);
}

/** What a field for a time shows is the time here; what is sent is that moment for everybody. */
function worldTime(written: string): string | null {
  const time = new Date(written);
  return Number.isNaN(time.getTime()) ? null : time.toISOString();
}

function localTime(given: string): string {
  const time = new Date(given);
  if (Number.isNaN(time.getTime())) return "";
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
