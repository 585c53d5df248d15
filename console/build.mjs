// Bundles the console into the files that the server embeds. The result depends on the sources and on package-lock.json alone, so
// that a rebuild can be compared byte by byte. The compressed copies also depend on Node's zlib: compare what is in them.
import { build } from "esbuild";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const output = process.argv[2] ?? here("../crates/server/assets/console");

await mkdir(output, { recursive: true });
await build({
  entryPoints: [here("src/app.tsx")],
  outdir: output,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "inline",
  charset: "utf8",
  absWorkingDir: here("."),
});
for (const file of ["index.html", "icon.svg"]) await copyFile(here(`src/${file}`), `${output}/${file}`);
for (const file of ["app.js", "app.css"]) await writeFile(`${output}/${file}.gz`, gzipSync(await readFile(`${output}/${file}`), { level: 9 }));
