"""A database as full as after a busy week, written in bulk past the store: its statements are too polite for millions.

Every job has its job row, one state row, its tags and its count, so that the `check` view finds nothing wrong.
"""

from datetime import date, timedelta
from typing import Final

import asyncpg

from windlass.store import partitions
from windlass.store.partitions import Bounds

READY: Final = 110_000
WIDE: Final = 100_000  # more ready ones, all at the head of the queue `crowded`
NARROW: Final = 1_000  # behind them
SCHEDULED: Final = 200_000
DUE: Final = 5_000  # of these
HELD: Final = 5_000
RUNNING: Final = 4_000
FINISHED: Final = 210_000
KEPT: Final = 5_000
KEYS: Final = 20_000
OLDEST_DAY: Final = 6
TYPES_DECLARED: Final = 500
USERS: Final = 5_000
SPENT: Final = 20_000  # half of them past their time
NOTED: Final = 50_000
PAIRS: Final = 20  # of queue and type, in each step of the rollups
MINUTES: Final = 2 * 24 * 60
HOURS: Final = 60 * 24

QUEUES: Final = ("bulk", "default", "mail", "media")
TYPES: Final = ("email", "export", "rare", "report", "resize", "sync")
LIVING: Final = 17
DEAD: Final = 3

_STATE_TABLES: Final = ("scheduled", "held", "ready", "running")
_STATE: Final = "job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type"

# One row per job to be; `at` is when it became ready, or will. Ids ascend with n within each kind.
_PLAN: Final = f"""
create temp table plan as
select kind, n, uuidv7(make_interval(secs => -age_s)) as id,
  case when kind in ('wide', 'narrow') then 'crowded'
       when n % 40000 = 39999 then 'lonely'
       else (array['bulk', 'default', 'mail', 'media'])[1 + n / 8 % 4] end as queue,
  case when kind = 'held' then 'strange'
       when n % 20000 = 19999 then 'rare'
       else (array['email', 'email', 'email', 'resize', 'resize', 'report', 'sync', 'export'])[1 + n % 8] end as type,
  case kind when 'wide' then 8 when 'narrow' then 1 else 1 + n % 8 * (n / 64 % 2) end::smallint as demand,
  (case when kind in ('wide', 'narrow') then 0 else n % 7 - 3 end)::smallint as priority,
  now() - make_interval(secs => age_s) as created_at,
  now() - make_interval(secs => age_s)
    + make_interval(secs => case when kind <> 'scheduled' then 0 when n < {DUE} then 60 else 86400 end) as at,
  case when n % 10 = 0 then array['customer-' || n / 10 % 50, 'nightly']
       when n % 60000 = 59999 then array['precious'] end as tags
from (
  select 'finished' as kind, n, {OLDEST_DAY} * 86400::float8 * ({FINISHED} - n) / {FINISHED} + 7200 as age_s
  from generate_series(0, {FINISHED - 1}) n
  union all select 'held', n, 7200 - n * 1e-3::float8 from generate_series(0, {HELD - 1}) n
  union all select 'scheduled', n, 7100 - n * 1e-3::float8 from generate_series(0, {SCHEDULED - 1}) n
  union all select 'wide', n, 6000 - n * 1e-3::float8 from generate_series(0, {WIDE - 1}) n
  union all select 'narrow', n, 5000 - n * 1e-3::float8 from generate_series(0, {NARROW - 1}) n
  union all select 'ready', n, 4000 - n * 2e-2::float8 from generate_series(0, {READY - 1}) n
  union all select 'running', n, 100 - n * 1e-3::float8 from generate_series(0, {RUNNING - 1}) n
  union all select 'kept', n, 30 * 86400 - n * 1e-1::float8 from generate_series(0, {KEPT - 1}) n
) as kinds;
create temp table crew as
select n, gen_random_uuid() as id from generate_series(0, {LIVING + DEAD - 1}) n;
create function pg_temp.rank(p plan) returns bigint language sql immutable
return windlass.microseconds(p.at) - p.priority * 60000000::bigint;
"""

_JOBS: Final = """
insert into windlass.job{kept} (id, created_at, timeout_s, max_attempts, priority, thread_demand, type, queue,
  if_too_wide, payload, tags)
select id, created_at, 3600, 3, priority, demand, type, queue, 'narrow', '{{"to": "someone@example.org", "order": 12345}}',
  tags
from plan where (kind = 'kept') = {is_kept};
insert into windlass.tag{kept} select unnest(tags), id from plan where tags is not null and (kind = 'kept') = {is_kept};
insert into windlass.outcome{kept} (job_id, ready_at, started_at, finished_at, attempt, failures, threads, status, queue,
  type, worker_id, token, result, error, fingerprint)
select id, at, at, at + interval '1 second', 1, 0, demand, f.status, queue, type, null, gen_random_uuid(), 'true', f.error,
  case when f.error is not null then substr(md5((n % 50)::text), 1, 16) end
from plan
cross join lateral (select {status} as status) s
cross join lateral (
  select s.status, case when s.status = 'failed' then json_build_object('type', 'ValueError', 'message', 'no user ' || n,
    'traceback', (select string_agg(md5((n + line)::text), E'\n') from generate_series(1, 60) line)) end as error
) f
where kind = '{kind}';
insert into windlass.attempt{kept} (job_id, attempt, started_at, ended_at, status, token, error, fingerprint)
select o.job_id, a, o.started_at, o.finished_at, 'failed', gen_random_uuid(),
  '{{"type": "ValueError", "message": "no"}}', 'ValueError'
from windlass.outcome{kept} o cross join generate_series(1, 2) a where o.status = 'failed';
"""
_FINISHED: Final = _JOBS.format(
    kept="",
    is_kept="false",
    kind="finished",
    status="case when n % 10 < 8 then 'completed' when n % 30 < 10 then 'cancelled' else 'failed' end",
)
_KEPT: Final = _JOBS.format(kept="_kept", is_kept="true", kind="kept", status="'failed'")

_WAITING: Final = f"""
insert into windlass.scheduled ({_STATE})
select id, pg_temp.rank(p), at, (n % 4 = 3)::integer, (n % 4 = 3)::integer, demand, false, queue, type
from plan p where kind = 'scheduled' order by at;
insert into windlass.attempt (job_id, attempt, started_at, ended_at, status, token, error, fingerprint)
select s.job_id, 1, now(), now(), 'failed', gen_random_uuid(), '{{"type": "ValueError", "message": "no"}}', 'ValueError'
from windlass.scheduled s where s.attempt = 1;
insert into windlass.held ({_STATE}, reason)
select id, pg_temp.rank(p), at, 0, 0, demand, false, queue, type, 'unknown type' from plan p where kind = 'held';
insert into windlass.ready ({_STATE})
select id, pg_temp.rank(p), at, 0, 0, demand, false, queue, type from plan p where kind in ('wide', 'narrow', 'ready');
insert into windlass.running ({_STATE}, claimed_at, token, worker_id, cancel_requested)
select p.id, pg_temp.rank(p), at, 1, 0, demand, false, queue, type, at, gen_random_uuid(), c.id,
  case when p.n % 100 = 0 then '{{"type": "Cancelled", "message": "asked"}}'::json end
from plan p join crew c on c.n = p.n % {LIVING + DEAD} where kind = 'running' order by p.n;
"""

_AROUND: Final = f"""
insert into windlass.worker (id, started_at, renewed_at, lease_until, died_at, threads, name, queues, types, cause)
select id, now(), now(), now() + case when n < {LIVING} then interval '1 day' else interval '-1 minute' end,
  case when n >= {LIVING} then now() end, 16, 'worker ' || n, array['bulk', 'default', 'mail', 'media', 'crowded'],
  array['email', 'export', 'rare', 'report', 'resize', 'sync'], case when n >= {LIVING} then 'expired' end
from crew;
insert into windlass.idempotency
select 'key ' || kind || n, id, created_at, '' from plan
where kind in ('finished', 'scheduled') and n % (({FINISHED + SCHEDULED}) / {KEYS}) = 0;
insert into windlass.queue values ('media', true), ('mail', false);
insert into windlass.tally (horizon, n, status, queue, type)
select pg_snapshot_xmin(pg_current_snapshot()), count(*), status, queue, type
from (
  select status, queue, type from windlass.outcome union all select status, queue, type from windlass.outcome_kept
  union all select 'scheduled', queue, type from windlass.scheduled
  union all select 'held', queue, type from windlass.held
  union all select 'ready', queue, type from windlass.ready
  union all select 'running', queue, type from windlass.running
) place
group by status, queue, type;
insert into windlass.job_type
select 'type ' || n, now(), 60, 3, 0, 1, 'default', 'narrow', array['a'], null, repeat('word ', 200), '{{"type": "object"}}'
from generate_series(1, {TYPES_DECLARED}) n;
insert into windlass.account select 'user ' || n, now(), repeat('h', 97), array['read'] from generate_series(1, {USERS}) n;
insert into windlass.api_key (id, created_at, digest, name, prefix, scopes)
select gen_random_uuid(), now() - make_interval(secs => n), sha256(n::text::bytea), 'key', 'wl_', array['read']
from generate_series(1, {USERS}) n;
insert into windlass.spent
select 'token ' || n, now() + make_interval(secs => n - {SPENT} / 2 - 3600) from generate_series(1, {SPENT}) n;
insert into windlass.audit (at, actor, action, target, detail)
select now(), 'ann', 'cancel', 'job ' || n, '{{"reason": "no"}}' from generate_series(1, {NOTED}) n;
insert into windlass.rollup (step_s, at, queue, type, completed, failed, cancelled, retried, waited, ran)
select s.step_s, to_timestamp(floor(extract(epoch from now()) / s.step_s) * s.step_s - n * s.step_s),
  case when p = 0 then '' else 'queue ' || p % 5 end, case when p = 0 then '' else 'type ' || p end, 10, 1, 0, 2,
  array_fill(1::bigint, array[32]), array_fill(1::bigint, array[32])
from (values (60, {MINUTES}), (3600, {HOURS})) as s (step_s, steps)
cross join lateral generate_series(0, s.steps - 1) n cross join generate_series(0, {PAIRS}) p;
drop table plan, crew cascade;
"""


async def fill(url: str) -> None:
    """Fill it, with statistics taken while nothing was in it, and with nobody to take them anew."""
    connection = await asyncpg.connect(url)
    try:
        today: date = await connection.fetchval("select now()::date")
        for day in range(OLDEST_DAY + 1, 1, -1):
            bounds = Bounds(today - timedelta(days=day), today - timedelta(days=day - 1))
            for table in ("job", "tag", "outcome", "attempt"):
                await partitions._create(connection, "windlass", table, bounds)
        horizon = Bounds(today - timedelta(days=20), today).ids[0]
        await connection.execute("update windlass.horizon set id = $1", horizon)
        await _take_statistics_of_nothing(connection)
        for text in (_PLAN, _FINISHED, _KEPT, _WAITING, _AROUND):
            await connection.execute(text)
    finally:
        await connection.close()


async def _take_statistics_of_nothing(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """The worst there are: tables that were full once, so that pages are counted, and no row in them."""
    leaves = await connection.fetch(
        "select oid::regclass::text as name from pg_class where relnamespace = 'windlass'::regnamespace and relkind = 'r'"
    )
    for leaf in leaves:
        await connection.execute(f"alter table {leaf['name']} set (autovacuum_enabled = off)")
    common = f"insert into windlass.%s ({_STATE}%s) select gen_random_uuid(), n, now(), 0, 0, 1, false, 'q', 't'%s"
    more = {
        "held": (", reason", ", ''"),
        "running": (", claimed_at, token, worker_id", ", now(), gen_random_uuid(), gen_random_uuid()"),
    }
    for table in _STATE_TABLES:
        columns, values = more.get(table, ("", ""))
        await connection.execute(common % (table, columns, values) + " from generate_series(1, 2000) n")
        await connection.execute(f"delete from windlass.{table}")
    await connection.execute("analyze")


async def analyse(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("vacuum (analyze)")
    await connection.close()
