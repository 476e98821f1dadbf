import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "@/api/client";
import { startLive } from "@/api/live";
import { router } from "@/app/router";
import { applyTheme } from "@/app/theme";
import "@/styles.css";

// Dialogs add a style of their own; the content security policy takes it with the nonce of this page.
Object.assign(globalThis, {
  __webpack_nonce__: document.querySelector<HTMLMetaElement>("meta[name=csp-nonce]")?.content,
});
applyTheme();

const client = new QueryClient({
  defaultOptions: {
    queries: {
      // The stream brings what changes; a screen that is opened again shows what it has, and asks.
      staleTime: 2_000,
      retry: (count, error) => !(error instanceof ApiError && error.status < 500) && count < 5,
    },
  },
});
startLive(client);

createRoot(document.getElementById("root") as HTMLElement).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
