// Makes the pictures of the README, from a server with some traffic.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { ROOT, cleanUp, openPage, startBrowser, startServer } from "./harness.mjs";
import { Client, fill, traffic } from "./seed.mjs";

const folder = join(ROOT, "docs/pictures");
mkdirSync(folder, { recursive: true });
const [server, browser] = await Promise.all([startServer(), startBrowser()]);
const stop = new AbortController();
try {
  const client = new Client(server.url);
  await fill(client);
  const asking = traffic(client, stop.signal);
  const page = await openPage(browser, { viewport: { width: 1280, height: 800 } });
  await page.goto(`${server.url}/console/now?ns=shop`);
  // The charts begin with the page and are a minute wide.
  await page.waitForTimeout(58_000);
  await page.screenshot({ path: join(folder, "console-now.png") });
  await page.goto(`${server.url}/console/refusals?ns=shop`);
  await page.locator("tbody tr", { hasText: "builds/at-once" }).first().getByRole("button", { name: "Why?" }).click();
  await page.getByText("Who uses it up").waitFor();
  await page.getByText("builder-7").waitFor();
  await page.screenshot({ path: join(folder, "console-why.png") });
  stop.abort();
  await asking;
} finally {
  stop.abort();
  await cleanUp();
}
