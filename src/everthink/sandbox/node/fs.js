// fs, as Node.js has it: the functions that scripts use, over the files of the job.

const files = globalThis.files;
const textWanted = (options) => (typeof options === 'string' ? options : options?.encoding);

function failing(code, path) {
  return Object.assign(new Error(`${code}: ${path}`), { code, path });
}
function there(path) {
  if (!files.exists(path)) throw failing('ENOENT', path);
  return files.stat(path);
}

export function readFileSync(path, options) {
  if (there(path).kind === 'folder') throw failing('EISDIR', path);
  return textWanted(options) ? files.read(path) : files.readBytes(path);
}
export const writeFileSync = (path, data) => files.write(path, data);
export const appendFileSync = (path, data) => files.append(path, data);
export const existsSync = (path) => files.exists(path);
export function readdirSync(path, options) {
  if (there(path).kind !== 'folder') throw failing('ENOTDIR', path);
  const names = files.list(path);
  return options?.withFileTypes ? names.map((name) => ({ name, parentPath: path, ...kindOf(files.stat(`${path}/${name}`)) })) : names;
}
export function mkdirSync(path, options) {
  if (!options?.recursive && files.exists(path)) throw failing('EEXIST', path);
  files.makeFolder(path);
}
export function unlinkSync(path) {
  if (there(path).kind === 'folder') throw failing('EISDIR', path);
  files.remove(path);
}
export function rmSync(path, options) {
  if (!files.exists(path) && options?.force) return;
  if (there(path).kind === 'folder' && !options?.recursive) throw failing('EISDIR', path);
  files.remove(path);
}
export function rmdirSync(path) {
  if (readdirSync(path).length) throw failing('ENOTEMPTY', path);
  files.remove(path);
}
const kindOf = (stat) => ({ isFile: () => stat.kind === 'file', isDirectory: () => stat.kind === 'folder', isSymbolicLink: () => false });
export function statSync(path) {
  const stat = there(path);
  return { size: stat.size, ...kindOf(stat) };
}
export const lstatSync = statSync;
export function copyFileSync(from, to) { files.write(to, readFileSync(from)); }
export function renameSync(from, to) {
  copyFileSync(from, to);
  files.remove(from);
}
export const accessSync = (path) => { there(path); };

const sync = {
  readFileSync, writeFileSync, appendFileSync, readdirSync, mkdirSync, unlinkSync, rmSync, rmdirSync, statSync,
  lstatSync, copyFileSync, renameSync, accessSync,
};
export const promises = Object.fromEntries(
  Object.entries(sync).map(([name, run]) => [name.slice(0, -4), async (...args) => run(...args)]),
);
export default { ...sync, existsSync, promises };
