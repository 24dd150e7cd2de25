/** Asking the server of this page: a value, or what it says when it refuses. */

export type Told<T> = { value: T; trouble: null } | { value: null; trouble: string };

/** Look, or with a body change something. */
export async function ask<T>(url: string, body?: Record<string, string>): Promise<Told<T>> {
  const options = body ? { method: "POST", body: JSON.stringify(body) } : { headers: { accept: "application/json" } };
  try {
    const answer = await fetch(url, options);
    if (answer.ok) return { value: (await answer.json()) as T, trouble: null };
    const told = (await answer.json()) as { error?: string };
    return { value: null, trouble: told.error ?? `The server answered ${answer.status}.` };
  } catch {
    return { value: null, trouble: `The server could not be reached.${body ? " Nothing was changed." : ""}` };
  }
}
