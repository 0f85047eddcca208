// Opens a trace in speedscope, in Chromium without a screen, and prints what the page shows of it: the names of
// threads and streams, and the table of names with their times. Fails where speedscope says something else than
// that it has read a trace, or where a name that is asked for is not there.
//
//   node open.mjs TRACE NAME...

import chromium from "@sparticuz/chromium";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import puppeteer from "puppeteer-core";

const [trace, ...names] = process.argv.slice(2);
const app = "node_modules/speedscope/dist/release";
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json" };
// For a page to have read a trace.
const PATIENCE_MS = 60_000;

function serve(request, response) {
  const name = path.normalize(decodeURIComponent(request.url.split(/[?#]/)[0]));
  fs.readFile(name === "/trace.json" ? trace : path.join(app, name), (error, bytes) => {
    response.writeHead(error ? 404 : 200, { "content-type": TYPES[path.extname(name)] ?? "application/octet-stream" });
    response.end(bytes);
  });
}

const server = http.createServer(serve);
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const here = `http://127.0.0.1:${server.address().port}`;
const browser = await puppeteer.launch({
  args: [...chromium.args, "--no-sandbox"],
  executablePath: await chromium.executablePath(),
  headless: "shell",
});
let status = 0;
try {
  const page = await browser.newPage();
  const said = [];
  page.on("console", (message) => said.push(message.text()));
  page.on("pageerror", (error) => said.push(`error: ${error}`));
  const address = `${here}/index.html#profileURL=${encodeURIComponent(`${here}/trace.json`)}`;
  await page.goto(address, { waitUntil: "domcontentloaded", timeout: PATIENCE_MS });
  await page.waitForFunction(() => document.title.startsWith("trace.json"), { timeout: PATIENCE_MS });
  const shown = () => page.evaluate(() => document.body.innerText);
  const rows = await shown();
  // The view that lists names.
  await page.keyboard.press("3");
  await page.waitForFunction(() => document.body.innerText.includes("Symbol Name"), { timeout: PATIENCE_MS });
  const text = `${rows}\n${await shown()}`;
  console.log(text);
  const missing = names.filter((name) => !text.includes(name));
  const is_read = said.some((line) => line.includes("Importing as Trace Event Format"));
  const errors = said.filter((line) => line.startsWith("error:"));
  if (!is_read || errors.length > 0 || missing.length > 0) {
    console.error(`the trace is not shown as it should be: missing ${missing.join(", ") || "nothing"}; speedscope says:`);
    console.error(said.join("\n"));
    status = 1;
  }
} finally {
  await browser.close();
  server.close();
}
process.exit(status);
