// path, as Node.js has it for POSIX: the functions that scripts use.

export const sep = '/', delimiter = ':';

export function normalize(path) {
  const kept = [];
  for (const part of path.split('/')) {
    if (part === '..' && kept.length && kept.at(-1) !== '..') kept.pop();
    else if (part === '..' && !path.startsWith('/')) kept.push(part);
    else if (part && part !== '.' && part !== '..') kept.push(part);
  }
  return (path.startsWith('/') ? '/' : '') + kept.join('/') || '.';
}
export const join = (...parts) => normalize(parts.filter(Boolean).join('/'));
export const isAbsolute = (path) => path.startsWith('/');
export function resolve(...parts) {
  let path = '';
  for (const part of ['/', ...parts]) if (part) path = isAbsolute(part) ? part : `${path}/${part}`;
  return normalize(path);
}
export function dirname(path) {
  const place = path.replace(/(.)\/+$/, '$1').lastIndexOf('/');
  return place < 0 ? '.' : path.slice(0, place) || '/';
}
export function basename(path, ending = '') {
  const name = path.replace(/\/+$/, '').split('/').at(-1);
  return ending && name !== ending && name.endsWith(ending) ? name.slice(0, -ending.length) : name;
}
export function extname(path) {
  const name = basename(path), place = name.lastIndexOf('.');
  return place > 0 ? name.slice(place) : '';
}
export function relative(from, to) {
  const here = resolve(from).split('/').filter(Boolean), there = resolve(to).split('/').filter(Boolean);
  let same = 0;
  while (same < here.length && here[same] === there[same]) same++;
  return [...here.slice(same).map(() => '..'), ...there.slice(same)].join('/');
}
export const parse = (path) => {
  const base = basename(path), ext = extname(path);
  return { root: isAbsolute(path) ? '/' : '', dir: dirname(path), base, ext, name: base.slice(0, base.length - ext.length) };
};
export const posix = { sep, delimiter, normalize, join, isAbsolute, resolve, dirname, basename, extname, relative, parse };
export default posix;
