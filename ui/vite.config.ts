import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";
import { licenses } from "./licenses.ts";

const POLICY = [
  "default-src 'self'",
  "img-src 'self' data: blob:",
  "base-uri 'none'",
  "form-action 'none'",
  "object-src 'none'",
].join("; ");

/** Only in the build: Vite's own development scripts are inline. */
const policy = (): Plugin => ({
  name: "content-security-policy",
  apply: "build",
  transformIndexHtml: () => [
    { tag: "meta", attrs: { "http-equiv": "Content-Security-Policy", content: POLICY }, injectTo: "head-prepend" },
  ],
});

// `npm run dev` talks to an agent server on EVERTHINK, by default http://127.0.0.1:8790.
const server = process.env.EVERTHINK ?? "http://127.0.0.1:8790";

export default defineConfig({
  base: "./",
  plugins: [react(), policy(), licenses("THIRD_PARTY_LICENSES.md")],
  build: {
    outDir: "../src/everthink/devtools/static",
    emptyOutDir: true,
    target: "es2022",
    sourcemap: false,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1500,
  },
  server: {
    proxy: {
      "/agents": { target: server, ws: true },
      "/everthink": { target: server, ws: true },
    },
  },
});
