-- Rollups: what has happened over time. Nothing here is on the path of a job.

-- name: record_rollups
-- Append what a worker has seen since it last did: arrays by position. The histograms come as JSON: arrays of arrays must be
-- rectangular, and nulls are not.
insert into windlass.rollup_delta (queue, type, retried, waited, ran)
select d.queue, d.type, d.retried, d.waited, d.ran
from json_to_recordset($1::text::json) as d (queue text, type text, retried integer, waited integer[], ran integer[]);

-- name: fold_rollups
-- Add the deltas to their minute and their hour, and to the totals. A step keeps $1 pairs of queue and type: those it has, then the
-- busiest of the new ones. Guard: fold_lock, as for the counts.
with taken as (
  delete from windlass.rollup_delta d returning d.*
), pair as materialized (
  select t.queue, t.type, sum(t.completed + t.failed + t.cancelled + t.retried) as n from taken t group by t.queue, t.type
), here as materialized (
  select r.queue, r.type from windlass.rollup r where r.step_s = 60 and r.at = date_trunc('minute', now()) and r.queue <> ''
), kept as materialized (
  select p.queue, p.type from (
    select p.*, h.queue is not null as is_here,
      row_number() over (partition by h.queue is null order by p.n desc, p.queue, p.type) as place
    from pair p left join here h on h.queue = p.queue and h.type = p.type
  ) p
  where p.is_here or p.place <= $1 - (select count(*) from here)
), placed as materialized (
  select s.step_s, to_timestamp(floor(extract(epoch from t.at) / s.step_s) * s.step_s) as slot, w.queue, w.type,
    t.completed, t.failed, t.cancelled, t.retried, t.waited, t.ran
  from taken t
  cross join (values (60), (3600)) as s (step_s)
  cross join lateral (
    select '' as queue, '' as type
    union all
    select k.queue, k.type from kept k where k.queue = t.queue and k.type = t.type
  ) w
), counted as (
  select p.step_s, p.slot, p.queue, p.type, sum(p.completed) as completed, sum(p.failed) as failed,
    sum(p.cancelled) as cancelled, sum(p.retried) as retried
  from placed p group by p.step_s, p.slot, p.queue, p.type
), waits as (
  select x.step_s, x.slot, x.queue, x.type, array_agg(x.n order by x.i) as sums from (
    select p.step_s, p.slot, p.queue, p.type, u.i, sum(u.n) as n
    from placed p cross join lateral unnest(p.waited) with ordinality as u (n, i) group by 1, 2, 3, 4, 5
  ) x group by 1, 2, 3, 4
), runs as (
  select x.step_s, x.slot, x.queue, x.type, array_agg(x.n order by x.i) as sums from (
    select p.step_s, p.slot, p.queue, p.type, u.i, sum(u.n) as n
    from placed p cross join lateral unnest(p.ran) with ordinality as u (n, i) group by 1, 2, 3, 4, 5
  ) x group by 1, 2, 3, 4
)
insert into windlass.rollup as r (step_s, at, queue, type, completed, failed, cancelled, retried, waited, ran)
select c.step_s, c.slot, c.queue, c.type, c.completed, c.failed, c.cancelled, c.retried, w.sums, n.sums
from counted c
left join waits w using (step_s, slot, queue, type)
left join runs n using (step_s, slot, queue, type)
on conflict (step_s, at, queue, type) do update set
  completed = r.completed + excluded.completed,
  failed = r.failed + excluded.failed,
  cancelled = r.cancelled + excluded.cancelled,
  retried = r.retried + excluded.retried,
  waited = (
    select array_agg(coalesce(u.a, 0) + coalesce(u.b, 0) order by u.i)
    from unnest(r.waited, excluded.waited) with ordinality as u (a, b, i)
  ),
  ran = (
    select array_agg(coalesce(u.a, 0) + coalesce(u.b, 0) order by u.i)
    from unnest(r.ran, excluded.ran) with ordinality as u (a, b, i)
  );

-- name: expire_rollups
-- Forget minutes after two days and hours after sixty. Index: the primary key.
delete from windlass.rollup r
where (r.step_s = 60 and r.at < now() - interval '2 days') or (r.step_s = 3600 and r.at < now() - interval '60 days')
returning r.at;

-- name: series_start
-- The first moment of the newest $2 steps of $1 seconds, the current one included, by the database's clock.
select to_timestamp(floor(extract(epoch from now()) / $1::integer) * $1 - ($2::integer - 1) * $1) as start;

-- name: series
-- The rows of a span, summed into steps of $2 seconds. $3 and $4: of one queue or type alone; both null: the totals.
-- Index: the primary key.
select floor((extract(epoch from r.at) - extract(epoch from $5::timestamptz)) / $2::integer)::integer as n,
  r.completed, r.failed, r.cancelled, r.retried, r.waited, r.ran
from windlass.rollup r
where r.step_s = $1::integer and r.at >= $5::timestamptz
  and case when $3::text is null and $4::text is null then r.queue = ''
    else r.queue <> '' and ($3::text is null or r.queue = $3) and ($4::text is null or r.type = $4) end;

-- name: series_by
-- The same without durations, by queue or by type ($3): for small charts in lists.
select case when $3 = 'queue' then r.queue else r.type end as name,
  floor((extract(epoch from r.at) - extract(epoch from $4::timestamptz)) / $2::integer)::integer as n,
  sum(r.completed)::bigint as completed, sum(r.failed)::bigint as failed, sum(r.cancelled)::bigint as cancelled,
  sum(r.retried)::bigint as retried
from windlass.rollup r
where r.step_s = $1::integer and r.at >= $4::timestamptz and r.queue <> ''
group by 1, 2;
