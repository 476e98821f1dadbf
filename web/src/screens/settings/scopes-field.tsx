export const SCOPES = ["submit", "read", "operate", "admin"] as const;
export type Scope = (typeof SCOPES)[number];

export function ScopesField({ scopes, onScopes }: { scopes: readonly Scope[]; onScopes: (scopes: Scope[]) => void }) {
  const toggle = (scope: Scope) =>
    onScopes(scopes.includes(scope) ? scopes.filter((one) => one !== scope) : [...scopes, scope]);
  return (
    <fieldset className="flex flex-wrap gap-4">
      <legend className="mb-1 font-medium text-[13px]">May</legend>
      {SCOPES.map((scope) => (
        <label key={scope} className="flex items-center gap-1.5">
          <input
            type="checkbox"
            checked={scopes.includes(scope)}
            onChange={() => toggle(scope)}
            className="accent-accent"
          />
          {scope}
        </label>
      ))}
    </fieldset>
  );
}
