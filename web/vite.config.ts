import { fileURLToPath, URL } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// Asset addresses are relative: the server names the base path when it sends the page, so one build works under any prefix.
export default defineConfig({
  base: "./",
  plugins: [react(), tailwindcss()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  build: {
    outDir: "../src/windlass/api/ui",
    emptyOutDir: true,
    manifest: true, // says which files a screen needs; a test adds up the first load
    target: "es2023",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0, // the content security policy allows no data: scripts or styles
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8080", "/login": "http://127.0.0.1:8080" } },
  test: { environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}"] },
});
