// Bundles the console into the files that the server embeds. The result depends on the sources and on package-lock.json alone, so
// that a rebuild can be compared byte by byte.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";

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
