"""A plan that was run, as auto_explain tells it, and what may be asked of it."""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

Node = dict[str, Any]

# What grows with the number of jobs. The rest (worker, queue, horizon, reservation, leader, tally, counter) stays small.
_GROWS: Final = re.compile(
    r"(job|tag|outcome|attempt)(_kept|_\d{8}_\d{8})?|scheduled|held|ready|running|idempotency|account|api_key|spent|audit"
)
_MESSAGE: Final = re.compile(r"duration: ([\d.]+) ms +plan:\s*(\{.*\})", re.DOTALL)
MOST: Final = 2_000  # rows of a batch or a page


@dataclass(frozen=True, slots=True)
class Plan:
    """One statement's plan, with what each node did."""

    took_ms: float
    nodes: tuple[Node, ...]  # the root first

    @classmethod
    def parse(cls, message: str) -> "Plan | None":
        found = _MESSAGE.fullmatch(message)
        return (
            Plan(float(found[1]), tuple(node for node, _ in _deep(json.loads(found[2])["Plan"], 0))) if found else None
        )

    @property
    def root(self) -> Node:
        return self.nodes[0]

    @property
    def buffers(self) -> int:
        """Pages touched. A writing CTE that nobody reads is run after the root, which does not account for it."""
        read = {node.get("CTE Name") for node in self.nodes}
        unread = [n for n in self.nodes if n["Node Type"] == "ModifyTable" and _cte_of(n) and _cte_of(n) not in read]
        return sum(buffers(node) for node in (self.root, *unread))

    @property
    def visited(self) -> int:
        """Rows of growing tables that scans looked at, whether or not they were wanted."""
        return sum(visited(node) for node in self.nodes if grows(node))

    def visited_of(self, table: str) -> int:
        """The same for one table, all its partitions together."""
        ours = re.compile(rf"{table}(_\d{{8}}_\d{{8}})?")
        return sum(visited(node) for node in self.nodes if ours.fullmatch(node.get("Relation Name", "")))

    def scanned(self) -> list[str]:
        """Growing tables read from end to end. Partitions with nothing in them are no matter."""
        return [n["Relation Name"] for n in self.nodes if n["Node Type"] == "Seq Scan" and grows(n) and visited(n)]

    def walked(self) -> list[str]:
        """Growing tables whose index was walked from end to end, which is the same in disguise."""
        return [
            f"{node['Index Name']} ({visited(node)} rows)"
            for node in self.nodes
            if "Index Name" in node and grows(node) and "Index Cond" not in node and visited(node) > MOST
        ]

    def sorted(self) -> list[int]:
        """How many rows each sort was given."""
        sorts = [node for node in self.nodes if node["Node Type"] in {"Sort", "Incremental Sort"}]
        return [sum(rows(child) for child in _children(sort)) for sort in sorts]

    def touched(self, table: str) -> set[str]:
        """The partitions of a table that were really looked into."""
        names = {n["Relation Name"] for n in self.nodes if "Relation Name" in n and n["Actual Loops"] > 0}
        return {name for name in names if re.fullmatch(rf"{table}_\d{{8}}_\d{{8}}", name)}

    def tables(self) -> set[str]:
        return {node["Relation Name"] for node in self.nodes if "Relation Name" in node}

    def show(self) -> str:
        """For a person: what each node is, and what it did."""
        return "\n".join(_line(node, depth) for node, depth in _deep(self.root, 0))


def faults(plans: Collection[Plan], *, most_sorted: int = MOST) -> list[str]:
    """What no hot statement may do: scan a table that grows, or sort more than a page."""
    found = []
    for plan in plans:
        wrong = [f"scans {', '.join(plan.scanned())}"] if plan.scanned() else []
        wrong += [f"walks all of {index}" for index in plan.walked()]
        wrong += [f"sorts {count} rows" for count in plan.sorted() if count > most_sorted]
        if wrong:
            found.append(f"{'; '.join(wrong)}\n{plan.show()}")
    return found


def grows(node: Node) -> bool:
    return "Relation Name" in node and _GROWS.fullmatch(node["Relation Name"]) is not None


def rows(node: Node) -> int:
    count: float = node["Actual Rows"] * node["Actual Loops"]
    return round(count)


def visited(node: Node) -> int:
    if node["Node Type"] == "ModifyTable":
        return 0
    removed = sum(float(node.get(f"Rows Removed by {why}", 0)) for why in ("Filter", "Index Recheck"))
    return rows(node) + round(removed * int(node["Actual Loops"]))


def buffers(node: Node) -> int:
    return sum(int(node.get(f"Shared {how} Blocks", 0)) for how in ("Hit", "Read"))


def _children(node: Node) -> list[Node]:
    return [child for child in node.get("Plans", []) if child["Parent Relationship"] not in {"InitPlan", "SubPlan"}]


def _cte_of(node: Node) -> str | None:
    name: str = node.get("Subplan Name", "")
    return name.removeprefix("CTE ") if name.startswith("CTE ") else None


def _deep(node: Node, depth: int) -> Iterator[tuple[Node, int]]:
    yield node, depth
    for child in node.get("Plans", []):
        yield from _deep(child, depth + 1)


def _line(node: Node, depth: int) -> str:
    on = " ".join(str(node[key]) for key in ("Subplan Name", "Relation Name", "Index Name", "CTE Name") if key in node)
    did = f"rows {rows(node)}, loops {node['Actual Loops']}, buffers {buffers(node)}"
    out = node.get("Rows Removed by Filter", 0)
    conditions = " ".join(str(node[key]) for key in ("Index Cond", "Sort Key") if key in node)
    return f"{'  ' * depth}{node['Node Type']} {on}: {did}{f', thrown away {out} a loop' if out else ''} {conditions[:160]}"
