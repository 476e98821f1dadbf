/** Who may do what, what was done, how it is configured, and whether what it stands on is well. */

import { useQuery } from "@tanstack/react-query";
import { get } from "@/api/client";
import { useScopes } from "@/api/queries";
import type { Configuration, Health } from "@/api/schema";
import { setTheme, type Theme, useTheme } from "@/app/theme";
import { ApiKeys } from "@/screens/settings/api-keys";
import { AuditLog } from "@/screens/settings/audit-log";
import { Users } from "@/screens/settings/users";
import { cx } from "@/ui/cx";
import { Failure, Loading, Page, Panel } from "@/ui/page";
import { Text } from "@/ui/text";

export function Settings() {
  const { admin } = useScopes();
  return (
    <Page title="Settings">
      <div className="grid items-start gap-4 lg:grid-cols-2">
        <Appearance />
        <HealthPanel />
      </div>
      {admin ? (
        <>
          <div className="grid items-start gap-4 lg:grid-cols-2">
            <ApiKeys />
            <Users />
          </div>
          <AuditLog />
          <ConfigurationPanel />
        </>
      ) : (
        <p className="text-muted">API keys, users, the audit log and the configuration need the scope admin.</p>
      )}
    </Page>
  );
}

const THEMES: { theme: Theme; label: string }[] = [
  { theme: "system", label: "As the system" },
  { theme: "light", label: "Light" },
  { theme: "dark", label: "Dark" },
];

function Appearance() {
  const current = useTheme();
  const { subject } = useScopes();
  return (
    <Panel title="This browser">
      <div className="flex flex-col gap-3 px-4 py-3">
        <p>
          Logged in as{" "}
          <strong>
            <Text>{subject}</Text>
          </strong>
        </p>
        <fieldset className="flex flex-wrap items-center gap-4">
          <legend className="mb-1 text-muted text-xs">Colours</legend>
          {THEMES.map(({ theme, label }) => (
            <label key={theme} className="flex items-center gap-1.5">
              <input
                type="radio"
                name="theme"
                checked={theme === current}
                onChange={() => setTheme(theme)}
                className="accent-accent"
              />
              {label}
            </label>
          ))}
        </fieldset>
      </div>
    </Panel>
  );
}

function HealthPanel() {
  const query = useQuery({ queryKey: ["health"], queryFn: () => get<Health>("/v1/health"), refetchInterval: 10_000 });
  return (
    <Panel title="Health">
      {query.isPending ? (
        <Loading />
      ) : query.isError ? (
        <Failure error={query.error} />
      ) : (
        <dl className="px-4 py-2">
          {query.data.parts.map((part) => (
            <div key={part.name} className="flex gap-3 py-1">
              <dt className="w-32 shrink-0 text-muted">{part.name}</dt>
              <dd className={cx("min-w-0 break-words", part.ok ? "" : "font-medium text-red")}>
                <span aria-hidden="true">{part.ok ? "✓ " : "✕ "}</span>
                <Text>{part.detail}</Text>
              </dd>
            </div>
          ))}
        </dl>
      )}
    </Panel>
  );
}

function ConfigurationPanel() {
  const query = useQuery({
    queryKey: ["configuration"],
    queryFn: () => get<Configuration>("/v1/configuration"),
    staleTime: 60_000,
  });
  return (
    <Panel title="Configuration of this API process">
      {query.isPending ? (
        <Loading />
      ) : query.isError ? (
        <Failure error={query.error} />
      ) : (
        <div className="relative max-h-96 overflow-auto" tabIndex={0} role="region" aria-label="Configuration">
          <table className="w-full">
            <thead className="sr-only">
              <tr>
                <th>Setting</th>
                <th>Value</th>
                <th>Meaning</th>
              </tr>
            </thead>
            <tbody>
              {query.data.settings.map((setting) => (
                <tr key={setting.variable} className="border-line border-b align-top last:border-b-0">
                  <td className="px-4 py-1.5 font-mono text-xs">{setting.variable}</td>
                  <td
                    className={cx(
                      "max-w-72 break-words px-4 py-1.5 font-mono text-xs",
                      setting.is_default && "text-muted",
                    )}
                  >
                    <Text>{setting.value}</Text>
                  </td>
                  <td className="px-4 py-1.5 text-muted text-xs">{setting.meaning}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}
