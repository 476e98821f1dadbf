/** Which rows are selected. Shift reaches from the last row that was clicked to this one. */
export interface Selection {
  ids: ReadonlySet<string>;
  last: number | null;
}

export const NOTHING: Selection = { ids: new Set(), last: null };

export function toggle(
  selection: Selection,
  index: number,
  idAt: (index: number) => string | undefined,
  reach = false,
): Selection {
  const ids = new Set(selection.ids);
  const id = idAt(index);
  if (id === undefined) return selection;
  if (reach && selection.last !== null) {
    const on = selection.ids.has(idAt(selection.last) ?? "");
    const [from, to] = [Math.min(selection.last, index), Math.max(selection.last, index)];
    for (let at = from; at <= to; at++) {
      const one = idAt(at);
      if (one !== undefined) on ? ids.add(one) : ids.delete(one);
    }
  } else if (!ids.delete(id)) ids.add(id);
  return { ids, last: index };
}
