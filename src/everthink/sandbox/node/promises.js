// fs/promises, as Node.js has it.

import { promises } from 'node:fs';

export const {
  readFile, writeFile, appendFile, readdir, mkdir, unlink, rm, rmdir, stat, lstat, copyFile, rename, access,
} = promises;
export default promises;
