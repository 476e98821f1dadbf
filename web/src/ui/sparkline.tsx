/** A small line without axes: is it rising, is it flat, is it zero. */
const WIDTH = 96;
const HEIGHT = 22;

export function Sparkline({
  values,
  label,
  className = "",
}: {
  values: readonly number[];
  label: string;
  className?: string;
}) {
  const most = Math.max(...values, 1e-9);
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map(
    (value, at) => `${(at * step).toFixed(1)},${(HEIGHT - 1 - (value / most) * (HEIGHT - 3)).toFixed(1)}`,
  );
  return (
    <svg
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      width={WIDTH}
      height={HEIGHT}
      role="img"
      aria-label={label}
      className={className}
    >
      <polyline points={points.join(" ")} fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinejoin="round" />
    </svg>
  );
}
