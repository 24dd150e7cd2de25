/** What a tool asks a person: a form to fill in, an address to go to, or a plain yes or no. */

import { useId, useState, type FormEvent } from "react";
import { bounds, contentOf, fieldsOf, said, type Draft, type Field } from "./fields";
import { Icon } from "./icons";
import type { ToolPart } from "./tool-card";
import { hostOf, webOnly } from "./sources";

type Action = "accept" | "decline" | "cancel";
export type Given = { action: Action; content?: Record<string, unknown> };
type Form = { name: string; message: string; fields: Field[]; url: string | null; hasSchema: boolean };

export type Question = {
  /** The id of this question: a call may ask again. */
  id: string;
  /** Who asks: the name of a server, or nothing for the tool itself. */
  asks: string;
  /** How many seconds it waits, when its call runs meanwhile. */
  seconds: number | null;
  forms: Form[];
  answers: Record<string, Given> | null;
};

type Described = {
  kind?: unknown;
  asks?: unknown;
  seconds?: unknown;
  forms?: Record<string, { message?: unknown; schema?: unknown; url?: unknown }>;
  answers?: Record<string, Given>;
};

/** The question of a call, if it has one of its own. */
export function questionOf(part: ToolPart, heard: (approvalId: string) => unknown = () => undefined): Question | null {
  const described = part.approval?.descriptor as Described | undefined;
  if (!part.approval || described?.kind !== "question" || !described.forms) return null;
  const forms = Object.entries(described.forms).map(([name, { message, schema, url }]) => ({
    name,
    message: String(message ?? ""),
    fields: fieldsOf(schema),
    url: typeof url === "string" ? url : null,
    hasSchema: schema !== undefined,
  }));
  const seconds = typeof described.seconds === "number" ? described.seconds : null;
  const { id } = part.approval;
  const answers = described.answers ?? (heard(id) as Record<string, Given> | undefined) ?? null;
  return { id, asks: String(described.asks ?? ""), seconds, forms, answers };
}

/** What became of a question, in a word. */
export function outcome({ answers }: Question): "Answered" | "Declined" | "Cancelled" {
  const actions = Object.values(answers ?? {}).map(({ action }) => action);
  if (actions.length === 0 || actions.includes("accept")) return "Answered";
  return actions.includes("decline") ? "Declined" : "Cancelled";
}

// --- asking

type FormProps = {
  question: Question;
  tool: string;
  /** How often the server has shown that this is open. */
  shown: () => number;
  onAnswer: (output: unknown) => void;
};

export function QuestionForm({ question, tool, shown, onAnswer }: FormProps) {
  const { forms, asks, seconds } = question;
  const id = useId();
  const several = forms.length > 1;
  const [drafts, setDrafts] = useState<Draft[][]>(() => forms.map(({ fields }) => fields.map((field) => field.initial)));
  const [verdicts, setVerdicts] = useState<(Action | null)[]>(() => forms.map(({ fields }) => (fields.length > 0 ? "accept" : null)));
  const [tried, setTried] = useState(false);
  const [sent, setSent] = useState<number | null>(null);
  const waits = sent === shown();
  const lost = sent !== null && !waits; // it stands there once more

  const read = forms.map(({ fields }, at) => contentOf(fields, drafts[at] ?? []));
  const counts = (at: number) => !several || verdicts[at] === "accept";
  const troubles = forms.flatMap((form, at) => {
    if (several && verdicts[at] === null) return [place(id, at)];
    if (!counts(at)) return [];
    return form.fields.flatMap((_, field) => (read[at]?.problems[field] ? [place(id, at, field)] : []));
  });

  const send = (output: unknown) => {
    setSent(shown());
    onAnswer(output);
  };
  const accepted = (at: number): Given => {
    const content = read[at]?.content ?? {};
    return forms[at]?.hasSchema ? { action: "accept", content } : { action: "accept" };
  };
  const all = (action: Action) => Object.fromEntries(forms.map(({ name }) => [name, { action }]));
  const refuse = (action: Action) => send(several ? { answers: all(action) } : { action });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (waits) return;
    setTried(true);
    if (troubles[0] !== undefined) {
      document.getElementById(troubles[0])?.focus();
      return;
    }
    if (!several) return send(accepted(0));
    const answers = forms.map(({ name }, at) => {
      const action = verdicts[at] ?? "decline";
      return [name, action === "accept" ? accepted(at) : { action }];
    });
    send({ answers: Object.fromEntries(answers) });
  };

  const first = forms[0];
  const bare = !several && first?.fields.length === 0 && !first.url;
  const [yes, no] = several ? ["Send", "Decline all"] : bare ? ["Yes", "No"] : first?.url ? ["I have done it", "Decline"] : ["Send", "Decline"];
  return (
    <form className="question" noValidate aria-label={`Question of ${asks || tool}`} onSubmit={submit}>
      {asks && (
        <p className="quiet">
          <strong>{asks}</strong> asks, and is told what you answer.
          {seconds !== null && ` It waits ${seconds < 120 ? `${Math.round(seconds)} seconds` : `${Math.round(seconds / 60)} minutes`}.`}
        </p>
      )}
      <fieldset className="bare" disabled={waits}>
        {forms.map((form, at) => (
          <div key={form.name} className="form" data-form={form.name}>
            <p className="said asked">{form.message}</p>
            {form.url && <Address url={form.url} />}
            {several && (
              <Verdict
                id={place(id, at)}
                form={form}
                value={verdicts[at] ?? null}
                problem={tried && verdicts[at] === null ? "Please choose one." : null}
                onChange={(action) => setVerdicts(verdicts.with(at, action))}
              />
            )}
            {counts(at) &&
              form.fields.map((field, index) => (
                <FieldView
                  key={field.name}
                  id={place(id, at, index)}
                  field={field}
                  draft={drafts[at]?.[index] ?? null}
                  problem={tried ? (read[at]?.problems[index] ?? null) : null}
                  onChange={(draft) => setDrafts(drafts.with(at, (drafts[at] ?? []).with(index, draft)))}
                />
              ))}
          </div>
        ))}
        {lost && (
          <p className="tool-error" role="alert">
            Your answer was not taken, or did not arrive. The question is still open.
          </p>
        )}
        <div className="answer">
          <button type="submit" className="primary" aria-label={yes === "Send" ? "Send the answer" : undefined}>
            {yes}
          </button>
          <button type="button" onClick={() => refuse("decline")}>
            {no}
          </button>
          {!bare && (
            <button type="button" className="ghost" title="Neither yes nor no" onClick={() => refuse("cancel")}>
              Cancel
            </button>
          )}
          {waits && (
            <span className="quiet" role="status">
              Sending your answer…
            </span>
          )}
          {tried && troubles.length > 0 && (
            <span className="tool-error" role="status">
              {troubles.length === 1 ? "One field is" : `${troubles.length} fields are`} not right yet. Nothing was sent.
            </span>
          )}
        </div>
      </fieldset>
    </form>
  );
}

const place = (id: string, form: number, field?: number) => `${id}-${form}${field === undefined ? "" : `-${field}`}`;

type VerdictProps = { id: string; form: Form; value: Action | null; problem: string | null; onChange: (action: Action) => void };

/** Of several forms each is answered or declined for itself. */
function Verdict({ id, form, value, problem, onChange }: VerdictProps) {
  const yes = form.fields.length > 0 ? "Answer" : form.url ? "I have done it" : "Yes";
  const words: [Action, string][] = [["accept", yes], ["decline", yes === "Yes" ? "No" : "Decline"]];
  return (
    <div className="field" role="radiogroup" aria-label={form.message} aria-invalid={problem !== null}>
      <div className="options">
        {words.map(([action, word], at) => (
          <label key={action}>
            <input
              id={at === 0 ? id : undefined}
              type="radio"
              name={id}
              checked={value === action}
              onChange={() => onChange(action)}
            />
            {word}
          </label>
        ))}
      </div>
      <Problem id={`${id}-problem`} problem={problem} />
    </div>
  );
}

/** An address that the person is to open. Its host is shown as it is; nobody else opens it. */
export function Address({ url, children }: { url: string; children?: string }) {
  const host = hostOf(url);
  const link = webOnly(url);
  return (
    <div className="goes">
      {link && host ? (
        <a className="button" href={link} target="_blank" rel="noopener noreferrer">
          {children ?? "Open"} <strong>{host}</strong> <Icon name="away" size={15} />
        </a>
      ) : (
        <p className="tool-error">This page opens addresses of the web alone, and this is none.</p>
      )}
      <p className="quiet url">{url}</p>
    </div>
  );
}

// --- fields

type FieldProps = { id: string; field: Field; draft: Draft; problem: string | null; onChange: (draft: Draft) => void };

const FEW = 4;
const LONG = 120;

function FieldView(props: FieldProps) {
  const { id, field, problem } = props;
  const hint = [field.help, bounds(field), field.format === "date-time" ? "In your time zone." : ""].filter(Boolean).join(" ");
  const group = field.kind === "choices" || asRadios(field);
  const described = [hint && `${id}-help`, problem && `${id}-problem`].filter(Boolean).join(" ") || undefined;
  const label = (
    <>
      {field.label}
      {field.required && field.kind !== "boolean" ? <span className="needed" title="needed" aria-hidden="true"> *</span> : null}
    </>
  );
  return (
    <div className={`field ${field.kind} ${field.format}`} data-field={field.name}>
      {field.kind === "boolean" ? (
        <label className="tick">
          <Control {...props} described={described} />
          {label}
        </label>
      ) : group ? (
        <span id={`${id}-label`} className="label">{label}</span>
      ) : (
        <label className="label" htmlFor={id}>{label}</label>
      )}
      {hint && (
        <p id={`${id}-help`} className="quiet">
          {hint}
        </p>
      )}
      {field.kind !== "boolean" && <Control {...props} described={described} />}
      <Problem id={`${id}-problem`} problem={problem} />
    </div>
  );
}

function Problem({ id, problem }: { id: string; problem: string | null }) {
  return problem ? (
    <p id={id} className="tool-error">
      {problem}
    </p>
  ) : null;
}

const asRadios = (field: Field) => field.kind === "choice" && field.required && field.options.length <= FEW;

const TYPES: Record<string, string> = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

function Control({ id, field, draft, problem, described, onChange }: FieldProps & { described: string | undefined }) {
  const common = { id, "aria-describedby": described, "aria-invalid": problem !== null, "aria-required": field.required };
  if (field.kind === "boolean") {
    return <input {...common} type="checkbox" checked={draft === true} onChange={(event) => onChange(event.target.checked)} />;
  }
  if (field.kind === "choices" || asRadios(field)) return <Options id={id} {...{ field, draft, problem, described, onChange }} />;
  if (field.kind === "choice") {
    return (
      <select {...common} value={draft === null ? "" : String(draft)} onChange={(event) => onChange(event.target.value === "" ? null : Number(event.target.value))}>
        <option value="">{field.required ? "Choose…" : "No choice"}</option>
        {field.options.map((option, at) => (
          <option key={at} value={at}>
            {option.label}
          </option>
        ))}
      </select>
    );
  }
  const written = { ...common, value: typeof draft === "string" ? draft : "", autoComplete: "off" };
  if (field.kind === "json" || (field.kind === "text" && !field.format && (field.most ?? 0) > LONG)) {
    return (
      <textarea
        {...written}
        rows={3}
        className={field.kind === "json" ? "mono" : undefined}
        placeholder={field.kind === "json" ? "JSON" : undefined}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.form?.requestSubmit();
        }}
      />
    );
  }
  // Keys for numbers alone have no minus on some phones.
  const keys = field.kind === "number" && (field.least ?? -1) >= 0 ? (field.format === "integer" ? "numeric" : "decimal") : undefined;
  const type = field.kind === "text" ? (TYPES[field.format] ?? "text") : "text";
  return <input {...written} type={type} inputMode={keys} onChange={(event) => onChange(event.target.value)} />;
}

/** A few options to choose one of, or any number to choose some of. */
function Options({ id, field, draft, problem, described, onChange }: FieldProps & { described: string | undefined }) {
  const many = field.kind === "choices";
  const chosen = Array.isArray(draft) ? draft : [];
  const toggled = (at: number) => (chosen.includes(at) ? chosen.filter((one) => one !== at) : [...chosen, at]);
  return (
    <div
      className="options"
      role={many ? "group" : "radiogroup"}
      aria-labelledby={`${id}-label`}
      aria-describedby={described}
      aria-invalid={problem !== null}
    >
      {field.options.map((option, at) => (
        <label key={at}>
          <input
            id={at === 0 ? id : undefined}
            type={many ? "checkbox" : "radio"}
            name={id}
            checked={many ? chosen.includes(at) : draft === at}
            onChange={() => onChange(many ? toggled(at) : at)}
          />
          {option.label}
        </label>
      ))}
    </div>
  );
}

// --- afterwards

/** A question and what was answered to it. */
export function Answered({ question }: { question: Question }) {
  return (
    <div className="answered">
      {question.forms.map((form) => (
        <div key={form.name} className="form" data-form={form.name}>
          <p className="said quiet">{form.message}</p>
          <AnswerView form={form} given={question.answers?.[form.name]} />
        </div>
      ))}
    </div>
  );
}

function AnswerView({ form, given }: { form: Form; given: Given | undefined }) {
  if (!given) return null;
  if (given.action !== "accept") return <p>{given.action === "decline" ? "Declined." : "Cancelled, without an answer."}</p>;
  const rows = Object.entries(given.content ?? {});
  if (rows.length === 0) return <p>{form.url ? `Done, at ${hostOf(form.url)}.` : form.fields.length > 0 ? "Sent, with nothing filled in." : "Yes."}</p>;
  return (
    <dl>
      {rows.map(([name, value]) => {
        const field = form.fields.find((one) => one.name === name);
        return (
          <div key={name}>
            <dt>{field?.label ?? name}</dt>
            <dd>{said(field, value)}</dd>
          </div>
        );
      })}
    </dl>
  );
}
