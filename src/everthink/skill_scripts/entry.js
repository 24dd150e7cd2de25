// What stands before a script of a skill in JavaScript: it makes `ctx`, and calls the default export.
//
// Nothing in here protects anything: a script may change all of it and harms itself. Rights are asked for on
// the other side of bridge.call, and what is in /output is measured there again.

const LARGEST = 64000, MOST = 20;

function called(bridge, what) {
  return (...given) => bridge.call(what, ...given);
}

function toolsOf(bridge) {
  const call = (name, input = {}) => bridge.call('tool', name, input);
  return new Proxy(Object.freeze(Object.assign(Object.create(null), { call })), {
    get: (held, name) =>
      name in held || typeof name !== 'string' || name === 'then' || name === 'toJSON'
        ? held[name]
        : (input = {}) => call(name, input),
  });
}

function filesOf(texts, tree) {
  const found = {};
  for (const path of texts) {
    Object.defineProperty(found, path, { enumerable: true, get: () => tree.read(`/skill/${path}`) });
  }
  return Object.freeze(found);
}

function outputOf(tree) {
  const names = new Set();
  return Object.freeze({
    async writeFile(name, content) {
      const parts = String(name).split('/');
      if (parts.some((part) => ['', '.', '..'].includes(part)) || /[\0\\]/.test(name)) {
        throw new Error(`${JSON.stringify(name)} cannot be the name of an output file.`);
      }
      const data = new TextEncoder().encode(String(content));
      if (data.length > LARGEST) {
        throw new Error(`${name} has ${data.length} bytes, and an output file may have ${LARGEST}.`);
      }
      if (!names.has(parts.join('/')) && names.size >= MOST) {
        throw new Error(`A script may return ${MOST} output files, and ${name} is one more.`);
      }
      tree.write(`/output/${parts.join('/')}`, data);
      names.add(parts.join('/'));
    },
  });
}

function fetchOf(bridge) {
  return async (url, options = {}) => {
    const { body, headers = {}, method } = options;
    const found = await bridge.call('fetch', String(url), { body: body ?? null, headers: { ...headers }, method: method ?? null });
    const named = new Map(Object.entries(found.headers));
    return Object.freeze({
      url: found.url, status: found.status, ok: found.status >= 200 && found.status < 300,
      headers: Object.freeze({ get: (name) => named.get(String(name).toLowerCase()) ?? null, entries: () => named.entries() }),
      text: async () => found.body,
      json: async () => JSON.parse(found.body),
    });
  };
}

export default async function ({ input, skill, path, texts, args, network }, { bridge, files: tree }) {
  if (network) globalThis.fetch = fetchOf(bridge);
  const script = await import(`/skill/${path}`);
  if (typeof script.default !== 'function') {
    throw new TypeError(`${path} has no function as its default export: export default async function run(input, ctx) { … }`);
  }
  const workspace = Object.freeze({
    readFile: called(bridge, 'read_file'), listFiles: called(bridge, 'list_files'), glob: called(bridge, 'glob'),
    stat: called(bridge, 'stat'), writeFile: called(bridge, 'write_file'),
  });
  const ctx = { skill, files: filesOf(texts, tree), workspace, tools: toolsOf(bridge), output: outputOf(tree), args };
  return script.default(input, Object.freeze(ctx));
}
