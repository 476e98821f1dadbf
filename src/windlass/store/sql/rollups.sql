-- Rollups: what has happened over time. Nothing here is on the path of a job.

-- name: record_rollups
-- Append what a worker has seen since it last did: arrays by position. The histograms come as JSON: arrays of arrays must be
-- rectangular, and nulls are not.
insert into windlass.rollup_delta (queue, type, retried, waited, ran)
select d.queue, d.type, d.retried, d.waited, d.ran
from json_to_recordset($1::text::json) as d (queue text, type text, retried integer, waited integer[], ran integer[]);

-- name: fold_rollups
-- Add $2 deltas to their minute and their hour, and to the totals: a page, so that a backlog is worked off and never outgrows a
-- statement. A step keeps $1 pairs of queue and type: those it has, then the busiest of the new ones. The empty pair is what a worker
-- counted in the total alone. Guard: fold_lock, as for the counts. Index: the primary key.
with taken as (
  delete from windlass.rollup_delta d
  where d.ctid = any (array(select l.ctid from windlass.rollup_delta l limit $2))
  returning d.*, date_trunc('minute', d.at) as minute
), counts as materialized (
  select t.minute, t.queue, t.type, sum(t.completed) as completed, sum(t.failed) as failed, sum(t.cancelled) as cancelled,
    sum(t.retried) as retried, count(*) as n
  from taken t group by t.minute, t.queue, t.type
), steps as materialized (
  select distinct s.step_s, c.minute, to_timestamp(floor(extract(epoch from c.minute) / s.step_s) * s.step_s) as slot
  from counts c cross join (values (60), (3600)) as s (step_s)
), here as materialized (
  select s.step_s, s.slot, count(*) as n
  from (select distinct s.step_s, s.slot from steps s) s
  join windlass.rollup r on r.step_s = s.step_s and r.at = s.slot and r.queue <> ''
  group by s.step_s, s.slot
), pair as (
  select s.step_s, s.slot, c.queue, c.type, sum(c.completed + c.failed + c.cancelled + c.retried) as n
  from counts c join steps s using (minute) where c.queue <> '' group by s.step_s, s.slot, c.queue, c.type
), kept as materialized (
  select p.step_s, p.slot, p.queue, p.type
  from (
    select p.*, r.at is not null as is_here,
      row_number() over (partition by p.step_s, p.slot, r.at is null order by p.n desc, p.queue, p.type) as place
    from pair p
    left join windlass.rollup r on r.step_s = p.step_s and r.at = p.slot and r.queue = p.queue and r.type = p.type
  ) p
  left join here h using (step_s, slot)
  where p.is_here or p.place <= $1 - coalesce(h.n, 0)
), place as materialized (
  select c.minute, c.queue as from_queue, c.type as from_type, s.step_s, s.slot, '' as queue, '' as type
  from counts c join steps s using (minute)
  union all
  select c.minute, c.queue, c.type, s.step_s, s.slot, k.queue, k.type
  from counts c join steps s using (minute)
  join kept k on k.step_s = s.step_s and k.slot = s.slot and k.queue = c.queue and k.type = c.type
), counted as (
  select p.step_s, p.slot, p.queue, p.type, sum(c.completed) as completed, sum(c.failed) as failed,
    sum(c.cancelled) as cancelled, sum(c.retried) as retried
  from place p join counts c on c.minute = p.minute and c.queue = p.from_queue and c.type = p.from_type
  group by p.step_s, p.slot, p.queue, p.type
), wait as materialized (
  select t.minute, t.queue, t.type, u.i, sum(u.n) as n
  from taken t cross join lateral unnest(t.waited) with ordinality as u (n, i) group by t.minute, t.queue, t.type, u.i
), waits as (
  select x.step_s, x.slot, x.queue, x.type, array_agg(x.n order by x.i) as sums from (
    select p.step_s, p.slot, p.queue, p.type, w.i, sum(w.n) as n
    from place p join wait w on w.minute = p.minute and w.queue = p.from_queue and w.type = p.from_type
    group by p.step_s, p.slot, p.queue, p.type, w.i
  ) x group by x.step_s, x.slot, x.queue, x.type
), run as materialized (
  select t.minute, t.queue, t.type, u.i, sum(u.n) as n
  from taken t cross join lateral unnest(t.ran) with ordinality as u (n, i) group by t.minute, t.queue, t.type, u.i
), runs as (
  select x.step_s, x.slot, x.queue, x.type, array_agg(x.n order by x.i) as sums from (
    select p.step_s, p.slot, p.queue, p.type, w.i, sum(w.n) as n
    from place p join run w on w.minute = p.minute and w.queue = p.from_queue and w.type = p.from_type
    group by p.step_s, p.slot, p.queue, p.type, w.i
  ) x group by x.step_s, x.slot, x.queue, x.type
), added as (
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
    )
)
select coalesce(sum(c.n), 0)::bigint as folded from counts c;


-- name: expire_rollups
-- Forget minutes after two days and hours after sixty. Index: the primary key.
delete from windlass.rollup r
where (r.step_s = 60 and r.at < now() - interval '2 days') or (r.step_s = 3600 and r.at < now() - interval '60 days')
returning r.at;

-- name: series_start
-- The first moment of the newest $2 steps of $1 seconds, the current one included, by the database's clock.
select to_timestamp(floor(extract(epoch from now()) / $1::integer) * $1 - ($2::integer - 1) * $1) as start;

-- name: series
-- The rows of a span, by steps of $2 seconds: of one queue, $3, where an empty name is the total; of one type of it, unless $4 is null.
-- No condition on the queue is optional: a plan for any values would walk every row of the span. Index: the primary key.
select floor((extract(epoch from r.at) - extract(epoch from $5::timestamptz)) / $2::integer)::integer as n,
  r.completed, r.failed, r.cancelled, r.retried, r.waited, r.ran
from windlass.rollup r
where r.step_s = $1::integer and r.at >= $5::timestamptz and r.queue = $3::text and ($4::text is null or r.type = $4);

-- name: series_of_type
-- The same of one type, $3, in every queue. Index: the primary key.
select floor((extract(epoch from r.at) - extract(epoch from $4::timestamptz)) / $2::integer)::integer as n,
  r.completed, r.failed, r.cancelled, r.retried, r.waited, r.ran
from windlass.rollup r
where r.step_s = $1::integer and r.at >= $4::timestamptz and r.type = $3::text and r.queue <> '';

-- name: series_by
-- The same without durations, by queue or by type ($3): for small charts in lists.
select case when $3 = 'queue' then r.queue else r.type end as name,
  floor((extract(epoch from r.at) - extract(epoch from $4::timestamptz)) / $2::integer)::integer as n,
  sum(r.completed)::bigint as completed, sum(r.failed)::bigint as failed, sum(r.cancelled)::bigint as cancelled,
  sum(r.retried)::bigint as retried
from windlass.rollup r
where r.step_s = $1::integer and r.at >= $4::timestamptz and r.queue <> ''
group by 1, 2;
