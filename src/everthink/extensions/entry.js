// What stands before an extension: it is called with each job, beside the extension's own module. Both are in
// one context, which is kept. Nothing in here protects the host, which checks every call: an extension may break
// all of it, and harms itself.

let extension;

const own = (held, name) => (Object.prototype.hasOwnProperty.call(Object(held), name) ? held[name] : undefined);

function hostOf(bridge) {
  const ask = (verb) => (...given) => bridge.call(verb, ...given);
  return Object.freeze({
    readFile: ask('read_file'), listFiles: ask('list_files'), writeFile: ask('write_file'), deleteFile: ask('delete_file'),
    getContext: ask('get_context'), setContext: ask('set_context'),
    getMessages: ask('get_messages'), sendMessage: ask('send_message'), getSessionInfo: ask('get_session_info'),
    fetch: ask('fetch'),
    storage: Object.freeze({ get: ask('get_value'), set: ask('set_value'), delete: ask('delete_value'), list: ask('list_values') }),
  });
}

function described() {
  if (typeof extension !== 'object' || extension === null || !('tools' in extension || 'hooks' in extension)) {
    return { isNone: true };
  }
  const { tools, hooks } = extension;
  if (Array.isArray(tools) || Array.isArray(hooks)) return { isNone: true };
  const handlers = Object.entries(hooks ?? {});
  const runs = ([, handler]) => typeof handler === 'function';
  return {
    fields: Object.keys(extension),
    tools: Object.entries(tools ?? {}).map(([name, tool]) => ({
      name, description: tool?.description, parameters: tool?.parameters, required: tool?.required,
      runs: typeof tool?.execute === 'function', fields: Object.keys(Object(tool)),
    })),
    hooks: handlers.filter(runs).map(([name]) => name),
    idle: handlers.filter((one) => !runs(one)).map(([name]) => name),
  };
}

async function chunks(handler, given, host) {
  let thrown;
  for (const one of given) {
    try {
      await handler(one, host);
    } catch (error) {
      thrown ??= { error };
    }
  }
  if (thrown) throw thrown.error;
}

function called(what, name, given, host) {
  if (what === 'tool') return own(extension.tools, name).execute(given, host);
  const handler = own(extension.hooks, name) ?? own(extension.hooks, name.replace(/[A-Z]/g, (one) => `_${one.toLowerCase()}`));
  return what === 'chunks' ? chunks(handler, given, host) : handler(given, host);
}

export default async function run({ module, what, name, given, hasHost }, { bridge }) {
  extension ??= (await import(module)).default;
  if (what === 'describe') return described();
  try {
    return { value: await called(what, name, given, hasHost ? hostOf(bridge) : null) };
  } catch (error) {
    if (error === null) return { failed: { name: '', message: 'It has no memory left.' } }; // not even for an error
    const isError = error instanceof Error;
    return { failed: { name: isError ? `${error.name}` : '', message: `${isError ? error.message : error}` } };
  }
}
