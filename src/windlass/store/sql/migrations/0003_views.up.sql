-- serves: 2
-- Exact counts by status, queue and type: the last fold, and what came since. Under a held snapshot folded rows are
-- still in the way, so reading starts where the fold ended; unless the database was restored into a cluster whose
-- transaction numbers begin anew.
create view windlass.tallied as
with last as (
  select coalesce(max(t.horizon), '0'::xid8) as horizon from windlass.tally t
), start as (
  select case when l.horizon <= pg_snapshot_xmax(pg_current_snapshot()) then l.horizon else '0'::xid8 end as xid from last l
)
select c.status, c.queue, c.type, sum(c.n)::bigint as n
from (
  select t.status, t.queue, t.type, t.n from windlass.tally t where t.horizon >= (select horizon from last)
  union all
  select c.status, c.queue, c.type, c.n from windlass.counter c where c.xid >= (select xid from start)
) c
group by c.status, c.queue, c.type
having sum(c.n) <> 0;

-- The types that some live worker knows; null while none lives.
create view windlass.known as
select array_agg(distinct t.type) as types
from windlass.worker w cross join unnest(w.types) as t (type)
where w.died_at is null and w.lease_until > now();

-- What must never be seen: jobs in no table or in two, keys without a job, counts that differ from the rows.
-- Reads everything; for tests and `doctor`, which assert that all four are 0.
create view windlass."check" as
with place as (
  select job_id, 'scheduled' as status, queue, type from windlass.scheduled
  union all select job_id, 'held', queue, type from windlass.held
  union all select job_id, 'ready', queue, type from windlass.ready
  union all select job_id, 'running', queue, type from windlass.running
  union all select job_id, status, queue, type from windlass.outcome
  union all select job_id, status, queue, type from windlass.outcome_kept
), known as (
  select id from windlass.job union all select id from windlass.job_kept
), counted as (
  select status, queue, type, sum(n) as n
  from (
    select status, queue, type, n from windlass.tallied
    union all select status, queue, type, -1 from place
  ) every
  group by status, queue, type
)
select
  (select count(*) from known k where not exists (select from place p where p.job_id = k.id)) as nowhere,
  (select count(*) from (select from place group by job_id having count(*) > 1) twice) as twice,
  (select count(*) from place p where not exists (select from known k where k.id = p.job_id)) as homeless,
  (select count(*) from counted where n <> 0) as miscounted;
