import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";

/** Licences under which a package may be part of the page. Another one stops the build: somebody has to read it. */
const ACCEPTED = new Set(["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"]);
/** Full texts, for packages that only refer to theirs. */
const TEXTS = join(dirname(fileURLToPath(import.meta.url)), "licenses");

type Package = { name: string; version: string; license: string; texts: string[] };

/** Write which packages are in the build, and under which terms: nothing but what is really in it, in one order. */
export const licenses = (fileName: string): Plugin => ({
  name: "third-party-licenses",
  apply: "build",
  generateBundle(_options, bundle) {
    const folders = new Set<string>();
    for (const part of Object.values(bundle))
      if (part.type === "chunk") for (const id of Object.keys(part.modules)) folders.add(folderOf(id) ?? "");
    folders.delete("");
    this.emitFile({ type: "asset", fileName, source: page([...folders].map(read)) });
  },
});

/** The folder of the package that a module belongs to, nested ones included. */
function folderOf(id: string): string | undefined {
  return /^.*\/node_modules\/(?:@[^/]+\/)?[^/@][^/]*(?=\/)/.exec(id.replace(/^\0/, ""))?.[0];
}

function read(folder: string): Package {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  if (!ACCEPTED.has(license)) throw new Error(`${name} ${version} is under "${license}", which ui/licenses.ts does not accept.`);
  const files = readdirSync(folder).filter((file) => /^(licen[cs]e|copying|notice)\b/i.test(file)).sort();
  const texts = files.map((file) => readFileSync(join(folder, file), "utf8"));
  if (!texts.length && !existsSync(join(TEXTS, `${license}.txt`)))
    throw new Error(`${name} ${version} says "${license}" but brings no text, and ui/licenses has none for it.`);
  return { name, version, license, texts };
}

function page(packages: Package[]): string {
  const titled = (one: Package) => `${one.name} ${one.version}`;
  packages.sort((a, b) => (titled(a) < titled(b) ? -1 : 1));
  const full = [...new Set(packages.map((one) => one.license))].sort().filter((id) => existsSync(join(TEXTS, `${id}.txt`)));
  return [
    "# Third-party licenses",
    "The page of `everthink dev` is built from these packages. Written by the build; not to be edited.",
    ["| Package | Version | License |", "|---|---|---|", ...packages.map((one) => `| ${one.name} | ${one.version} | ${one.license} |`)].join("\n"),
    ...packages.flatMap((one) => [
      `## ${titled(one)} (${one.license})`,
      ...(one.texts.length ? one.texts.map(quoted) : [`The package brings no text of its own; that of ${one.license} is below.`]),
    ]),
    ...full.flatMap((id) => [`## ${id}, in full`, quoted(readFileSync(join(TEXTS, `${id}.txt`), "utf8"))]),
  ].join("\n\n") + "\n";
}

/** As it is, whatever Markdown would make of it. */
function quoted(text: string): string {
  const lines = text.replace(/\r\n?/g, "\n").split("\n").map((line) => line.trimEnd());
  return ["```text", lines.join("\n").replace(/^\n+|\n+$/g, ""), "```"].join("\n");
}
