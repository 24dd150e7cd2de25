// What a script finds in JavaScript beside the language itself. javascript_guest.py loads this before it.
//
//   __host(what, ...)  asks our side at once; a failure comes back as { e: words }
//   __next()           what happens next: an answer of the host as [number, words or null, JSON], null when a
//                      timer is due, [] when there may be more to run, true when there is nothing more to run
//
// Both names are gone when the script begins. Nothing in here protects the host: a script may break all of it
// and harms itself. One answer is settled at a time, and everything that follows from it runs before the next
// one comes; so the order of the answers decides what a script does, and nothing else.

const host = globalThis.__host, next = globalThis.__next, settings = JSON.parse(globalThis.__settings);
for (const name of ['__host', '__next', '__settings']) delete globalThis[name];

const { stringify, parse } = JSON, wellFormed = Function.prototype.call.bind(String.prototype.toWellFormed);
const define = (name, value) =>
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });

function asked(...args) {
  const answer = host(...args);
  if (typeof answer === 'object' && answer !== null && 'e' in answer) throw new Error(answer.e);
  return answer;
}

// --- words

function inWords(value, deep) {
  switch (typeof value) {
    case 'string': return deep ? stringify(value) : value;
    case 'function': return `[Function: ${value.name || 'anonymous'}]`;
    case 'bigint': return `${value}n`;
    case 'object': break;
    default: return String(value);
  }
  if (value === null) return 'null';
  if (value instanceof Error) return thrownInWords(value);
  if (value instanceof Promise) return '[Promise]';
  if (value instanceof Map) return `Map ${inWords([...value], true)}`;
  if (value instanceof Set) return `Set ${inWords([...value], true)}`;
  if (value instanceof RegExp) return String(value);
  try {
    return stringify(value, (_, held) => (typeof held === 'bigint' ? `${held}n` : held)) ?? String(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}

const MOST_CAUSES = 8;
// What an error says of itself may be anything, also something that throws when it is read.
function saidBy(error, key) {
  try {
    return String(error[key] ?? '');
  } catch {
    return `(its ${key} cannot be read)`;
  }
}
function thrownInWords(error, deep = 0) {
  if (!(error instanceof Error)) return `Uncaught ${inWords(error)}`;
  const where = saidBy(error, 'stack').split('\n').filter((line) => line.trim() && !line.includes('(<module>:'));
  const why = [];
  if (error.cause !== undefined) {
    const isNext = error.cause instanceof Error;
    why.push(`caused by ${isNext && deep === MOST_CAUSES ? 'more, and so on' : isNext ? thrownInWords(error.cause, deep + 1) : inWords(error.cause)}`);
  }
  return asked('places', wellFormed([`${saidBy(error, 'name')}: ${saidBy(error, 'message')}`, ...where, ...why].join('\n')));
}

const PART = 65536;
function print(stream, text) {
  for (let start = 0; start < text.length; ) {
    let part = text.slice(start, start + PART);
    if (part.length === PART && (part.charCodeAt(PART - 1) & 0xfc00) === 0xd800) part = part.slice(0, -1);
    host('print', stream, wellFormed(part));
    start += part.length;
  }
}

const printed = (stream) => (...values) => print(stream, `${values.map((value) => inWords(value)).join(' ')}\n`);

const out = printed('stdout'), err = printed('stderr');
const begun = new Map();
define('console', {
  log: out, info: out, debug: out, dir: out, table: out, group: out, groupEnd() {}, warn: err, error: err,
  trace: (...values) => err('Trace:', ...values),
  assert: (holds, ...values) => { if (!holds) err('Assertion failed:', ...values); },
  time: (label = 'default') => { begun.set(label, Date.now()); },
  timeEnd: (label = 'default') => { out(`${label}: ${Date.now() - (begun.get(label) ?? Date.now())} ms`); },
});

// --- time and chance

const RealDate = Date;
let passed = 0;
const clock = settings.now === null ? () => RealDate.now() : () => settings.now + passed;

if (settings.now !== null) {
  const Standing = function Date(...given) {
    if (!new.target) return new RealDate(clock()).toString();
    return Reflect.construct(RealDate, given.length ? given : [clock()], new.target);
  };
  Object.setPrototypeOf(Standing, RealDate);
  Standing.prototype = RealDate.prototype;
  Standing.prototype.constructor = Standing;
  Standing.now = () => clock();
  define('Date', Standing);
}
const origin = clock();
define('performance', { now: () => clock() - origin, timeOrigin: origin });

if (settings.seed !== null) {
  let [a, b, c, d] = settings.seed;
  Math.random = () => {
    const t = b << 9;
    let r = Math.imul(b, 5);
    r = Math.imul((r << 7) | (r >>> 25), 9);
    c ^= a; d ^= b; b ^= c; a ^= d; c ^= t;
    d = (d << 11) | (d >>> 21);
    return (r >>> 0) / 4294967296;
  };
}
define('crypto', {
  getRandomValues(array) {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    bytes.set(asked('random', bytes.length));
    return array;
  },
  randomUUID() {
    const bytes = asked('random', 16);
    bytes[6] = (bytes[6] & 15) | 64;
    bytes[8] = (bytes[8] & 63) | 128;
    const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
    return hex.replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, '$1-$2-$3-$4-$5');
  },
});

// --- what is waited for: answers and timers

const open = new Map();
let timers = [], timerCount = 0, isWaiting = false, isLeft = true, isStill = false, hasReturned = false, hasCalled = false, onSettled = [], run = 0;

// Whatever waits in a script waits for this: there is always one question open while it runs.
function pump() {
  if (isWaiting || isLeft) return;
  isWaiting = true;
  const mine = run; // what is left of an earlier one is not settled in this one
  next().then((happened) => {
    if (mine !== run) return;
    isWaiting = false;
    isStill = happened === true;
    try {
      if (happened === null) fire();
      else if (happened.length) settle(...happened);
    } finally {
      if (happened === null || isStill || happened.length) for (const wake of onSettled.splice(0)) wake();
      pump();
    }
  }, () => {});
}

function enter(where) {
  isLeft = false;
  host(where);
  pump();
}

function leave(how, what) {
  isLeft = true;
  host(how, what);
}

function settle(number, words, json) {
  const { promise, resolve, reject } = open.get(number);
  open.delete(number);
  if (words === null) return resolve(json === undefined ? undefined : unpacked(json));
  if (hasReturned && heard.has(promise)) err(`After it had returned: ${words}`);
  reject(new Error(words));
}

function fire() {
  const timer = timers.shift();
  if (timer === undefined) return;
  if (settings.now !== null) passed = Math.max(passed, timer.due - settings.now);
  if (timer.every !== null) later({ ...timer, due: clock() + Math.max(1, timer.every) });
  tellTime();
  timer.run();
}

function later(timer) {
  let place = timers.length;
  while (place && timers[place - 1].due > timer.due) place--;
  timers.splice(place, 0, timer);
  if (place === 0) tellTime();
  return timer.id;
}

function tellTime() {
  host('timer', timers.length ? Math.max(0, timers[0].due - clock()) : -1);
}

function startTimer(run, wait, args, repeats) {
  if (typeof run !== 'function') throw new TypeError('A timer needs a function.');
  const time = Math.max(0, Number(wait) || 0);
  return later({ id: ++timerCount, due: clock() + time, every: repeats ? time : null, run: () => run(...args) });
}

const stopTimer = (id) => {
  timers = timers.filter((timer) => timer.id !== id);
  tellTime();
};
define('setTimeout', (run, wait, ...args) => startTimer(run, wait, args, false));
define('setInterval', (run, wait, ...args) => startTimer(run, wait, args, true));
define('setImmediate', (run, ...args) => startTimer(run, 0, args, false));
for (const name of ['clearTimeout', 'clearInterval', 'clearImmediate']) define(name, stopTimer);

// --- values on their way: JSON, with bytes (of a view what it shows) and large whole numbers in an envelope.
// What would arrive as something else, and nobody would know, does not leave.

const BYTES = '__bytes__', WHOLE = '__int__', LONGEST_INT = 4000, FIRST_WITH_EXPONENT = 1e21;
let isEnveloped = false;
const plainly = (prototype, asPlain) => Object.defineProperty(prototype, 'toJSON', {
  value() { return isEnveloped ? asPlain(this) : { ...this }; },
  writable: true, configurable: true,
});
for (const { prototype } of [Object.getPrototypeOf(Uint8Array), ArrayBuffer, DataView]) {
  plainly(prototype, (held) => ({ [BYTES]: asked('base64', bytesOf(held)) }));
}
function packed(value) {
  isEnveloped = true;
  try {
    return stringify(value, leaving);
  } finally {
    isEnveloped = false;
  }
}
function leaving(key, held) {
  const at = key === '' ? '' : ` (at ${stringify(key)})`;
  switch (typeof held) {
    case 'bigint': {
      const digits = String(held);
      if (digits.length > LONGEST_INT) throw new RangeError(`A whole number of more than 4,000 digits${at}: make it text in parts, or less exact.`);
      return { [WHOLE]: digits };
    }
    case 'number':
      if (!Number.isFinite(held)) throw new TypeError(`${held}${at} is no number of JSON. Use null, or a string.`);
      if (Number.isInteger(held) && !Number.isSafeInteger(held) && Math.abs(held) < FIRST_WITH_EXPONENT)
        throw new RangeError(`${held}${at} is beyond 2**53, where JavaScript rounds numbers, and may be another than was meant. Write a BigInt: 9007199254740993n.`);
      return held;
    case 'object':
      if (held === null && this[key] instanceof RealDate) throw new TypeError(`A Date${at} that is no time (Invalid Date) is no value of JSON. Use null, or a string.`);
      if (held instanceof Promise) throw new TypeError(`${key === '' ? 'It' : stringify(key)} is a promise that nobody has awaited: put await before what makes it.`);
      if (held instanceof Set) return [...held];
      if (held instanceof Map) return entries(held, at);
      return held instanceof Error ? `${held.name}: ${held.message}` : held;
    default: return held;
  }
}
function entries(map, at) {
  const made = Object.create(null);
  for (const [key, held] of map) {
    if (typeof key !== 'string' && typeof key !== 'number') throw new TypeError(`A Map${at} whose keys are no text: use [...map].`);
    if (key in made) throw new TypeError(`A Map${at} with two keys that become the same text, ${stringify(String(key))}: use [...map].`);
    made[key] = held;
  }
  return made;
}
function opened(_, held) {
  if (typeof held?.[BYTES] === 'string') return asked('bytes', held[BYTES]);
  return typeof held?.[WHOLE] === 'string' && /^-?[0-9]+$/.test(held[WHOLE]) ? BigInt(held[WHOLE]) : held;
}
const unpacked = (json) => (json.includes(`"${BYTES}"`) || json.includes(`"${WHOLE}"`) ? parse(json, opened) : parse(json));

// --- functions of the host

// A refusal that nobody hears would be lost. Whoever awaits a promise, or asks for what follows it, looks at its
// constructor first: so we know of it, and nothing happens in another order than it would.
const heard = new WeakSet(), unheard = new Map(), { then } = Promise.prototype;

function listened(promise) {
  Reflect.apply(then, promise, [undefined, (error) => { if (!heard.has(promise)) unheard.set(promise, error); }]);
  Object.defineProperty(promise, 'constructor', {
    get() { heard.add(promise); unheard.delete(promise); return Promise; }, configurable: true,
  });
  Object.defineProperty(promise, 'then', {
    value: (...given) => listened(Reflect.apply(then, promise, given)), writable: true, configurable: true,
  });
  return promise;
}
for (const name of ['all', 'allSettled', 'any', 'race']) {
  const real = Promise[name];
  Object.defineProperty(Promise, name, {
    value: { [name](given) { const made = Reflect.apply(real, this, [given]); return this === Promise ? listened(made) : made; } }[name],
    writable: true, configurable: true,
  });
}

// An answer that has not come yet. Whoever takes it for the answer itself is told so, instead of undefined.
function notYet(name, promise) {
  const early = () => { throw new TypeError(`${name}() was not awaited: put await before the call.`); };
  return new Proxy(promise, {
    get(_, key) {
      if (key === Symbol.toPrimitive || !(key in promise || typeof key === 'symbol' || key === 'toJSON')) early();
      const held = promise[key];
      return typeof held === 'function' && key !== 'constructor' ? held.bind(promise) : held;
    },
    ownKeys: early,
  });
}

function call(name, args) {
  const ask = {};
  hasCalled = true;
  ask.promise = listened(new Promise((resolve, reject) => {
    Object.assign(ask, { resolve, reject });
    open.set(asked('call', name, packed(args)), ask);
  }));
  return notYet(name, ask.promise);
}

// What cannot be offered is told to our side, and nothing of the job is run.
const offered = Object.create(null), refuse = (words) => { throw host('refuse', words); };
for (const name of settings.names) {
  const path = name.split('.'), last = path.pop();
  let place = offered;
  for (const part of path) place = place[part] ??= Object.create(null);
  if (typeof place === 'function' || place[last] !== undefined) refuse(`${name} cannot be both a function and a place of others`);
  place[last] = (...args) => call(name, args);
}
function closed(name, held) {
  if (typeof held !== 'object') return held;
  for (const key of Object.keys(held)) held[key] = closed(`${name}.${key}`, held[key]);
  return new Proxy(Object.freeze(held), {
    get(_, key) {
      if (key in held || typeof key === 'symbol' || key === 'then' || key === 'toJSON') return held[key];
      throw new ReferenceError(`There is no ${name}.${key} here. There is: ${Object.keys(held).join(', ')}`);
    },
  });
}
for (const name of Object.keys(offered)) {
  if (name in globalThis) refuse(`${name} is the name of something else in JavaScript`);
  offered[name] = closed(name, offered[name]);
  define(name, offered[name]);
}

// --- files

const bytesOf = (data) => {
  if (typeof data === 'string') return encode(data);
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  throw new TypeError('A file holds text, or bytes as Uint8Array.');
};
const encode = (text) => asked('encode', wellFormed(String(text)));
const decode = (bytes) => asked('decode', bytesOf(bytes));

const files = Object.freeze({
  read: (path) => asked('read', String(path), true),
  readBytes: (path) => asked('read', String(path), false),
  write: (path, data) => { asked('write', String(path), bytesOf(data), false); },
  append: (path, data) => { asked('write', String(path), bytesOf(data), true); },
  list: (path = '.') => asked('list', String(path)),
  exists: (path) => asked('kind', String(path))[0] !== null,
  stat(path) {
    const [kind, size] = asked('kind', String(path));
    return kind === null ? null : { kind, size };
  },
  makeFolder: (path) => { asked('folder', String(path)); },
  remove: (path) => { asked('remove', String(path)); },
});
define('files', files);

define('TextEncoder', class TextEncoder {
  get encoding() { return 'utf-8'; }
  encode(text = '') { return encode(text); }
});
define('TextDecoder', class TextDecoder {
  get encoding() { return 'utf-8'; }
  decode(bytes = new Uint8Array()) { return decode(bytes); }
});

function copied(value, known = new Map()) {
  if (typeof value === 'function' || typeof value === 'symbol') throw new DOMException('It cannot be copied.', 'DataCloneError');
  if (typeof value !== 'object' || value === null) return value;
  if (known.has(value)) return known.get(value);
  const keep = (copy) => (known.set(value, copy), copy);
  if (value instanceof RealDate) return keep(new RealDate(value.getTime()));
  if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
  if (value instanceof ArrayBuffer) return keep(value.slice(0));
  if (ArrayBuffer.isView(value)) return keep(value.slice());
  if (value instanceof Map) { const copy = keep(new Map()); value.forEach((held, key) => copy.set(copied(key, known), copied(held, known))); return copy; }
  if (value instanceof Set) { const copy = keep(new Set()); value.forEach((held) => copy.add(copied(held, known))); return copy; }
  if (value instanceof Error) { const copy = keep(new value.constructor(value.message)); copy.stack = value.stack; return copy; }
  const copy = keep(Array.isArray(value) ? [] : {});
  for (const key of Object.keys(value)) copy[key] = copied(value[key], known);
  return copy;
}
define('structuredClone', (value) => copied(value));

// --- what the job brings along

const given = { input: settings.input, args: settings.args, env: settings.env, stdin: settings.stdin };
if (settings.keep === null) for (const [name, value] of Object.entries(given)) if (!(name in globalThis)) define(name, value);

const exit = (code = 0) => {
  host('exit', Math.trunc(Number(code)) & 255);
  for (;;); // it is stopped here, whatever it catches
};
if (settings.style === 'command') {
  const written = (stream) => ({ write: (text) => (print(stream, String(text)), true), isTTY: false });
  define('exit', exit);
  define('process', {
    argv: ['node', settings.path, ...settings.args], env: { ...settings.env }, platform: 'linux', exitCode: undefined,
    exit: (code) => exit(code ?? globalThis.process?.exitCode ?? 0), cwd: () => settings.cwd,
    stdout: written('stdout'), stderr: written('stderr'),
    nextTick: (run, ...args) => queueMicrotask(() => run(...args)), on() {}, hrtime: { bigint: () => BigInt(clock()) * 1000000n },
  });
}

// --- running: javascript_guest.py calls these

const context = Object.freeze({ ...offered, files, args: settings.args, env: settings.env });
let value, thrown = null;

// Calls that nobody waits for are finished, too, and what follows from them.
async function finished() {
  hasReturned = true;
  if (!hasCalled && settings.style !== 'command') return; // nothing was begun that could be left
  do {
    host('finishing');
    await new Promise((wake) => onSettled.push(wake));
  } while (!isStill);
  for (const error of unheard.values()) {
    throw new Error(`${error?.message ?? inWords(error)}\nNobody has awaited this: write await before the call.`);
  }
}

async function ended(run) {
  enter('ending');
  try {
    value = await (thrown === null ? run() : undefined);
    await finished();
  } catch (error) {
    thrown ??= { error };
  }
  if (thrown !== null) return leave('threw', inTheirWords(thrown.error));
  if (settings.style === 'command') return leave('ended', Math.trunc(Number(globalThis.process?.exitCode)) & 255);
  let json;
  try {
    json = packed(value) ?? 'null';
  } catch (error) {
    return leave('threw', `What it returns cannot be written as JSON: ${inTheirWords(error)}`);
  }
  leave('value', json);
}

// What a function gives is the answer; a class is none.
function asAnswer(main) {
  return Function.prototype.toString.call(main).startsWith('class') ? undefined : main(settings.input, context);
}

function inTheirWords(error) {
  try {
    return wellFormed(thrownInWords(error));
  } catch {
    return 'Uncaught: what was thrown cannot be read. Throw an Error with a text as its message.';
  }
}

Object.defineProperty(globalThis, '__job', { value: Object.freeze({
  again: (input) => {
    run++;
    settings.input = parse(input);
    timers = [], onSettled = [], isWaiting = false, isLeft = true, hasReturned = hasCalled = false, value = undefined, thrown = null;
    open.clear();
    unheard.clear();
  },
  begun: () => enter('begun'),
  left: () => leave('left'),
  threw: (error) => { thrown ??= { error }; },
  take: (last) => { value = last; },
  snippet: () => ended(async () => {
    const last = await value;
    return typeof last === 'function' && settings.style !== 'command' ? asAnswer(last) : last;
  }),
  body: (run) => ended(run),
  module: (path) => ended(async () => {
    const loaded = await import(path), main = loaded.default ?? loaded.run;
    if (settings.style === 'command') return undefined;
    if (typeof main === 'function') return asAnswer(main);
    if (settings.style === 'function') throw new TypeError('It exports no function: export default async function run(input, context) { … }');
    return main;
  }),
}) });
