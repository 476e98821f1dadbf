-- Rolling partitions: made ahead, and removed when everything in them is old, without losing a job that matters.
-- {bounds} is put in by partitions.py from names it made itself (two dates).

-- name: partitions
-- Our partitions and what is left of interrupted work: made but not attached, or detached but not dropped.
select c.relname as name, i.inhparent is not null as attached, coalesce(i.inhdetachpending, false) as detaching
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_inherits i on i.inhrelid = c.oid
where n.nspname = $1 and c.relkind = 'r' and c.relname ~ '^(job|tag|outcome|attempt)_\d{8}_\d{8}$'
order by c.relname;

-- name: partition_lock
-- One maker of partitions at a time.
select pg_advisory_xact_lock(hashtextextended('windlass partitions ' || $1, 0));

-- name: today
-- The day, by the database's clock; bounds are midnights of UTC whatever the database's zone.
select (now() at time zone 'utc')::date as today;

-- name: raise_horizon
-- From here on what is written about jobs below this id goes to the `_kept` tables.
update windlass.horizon set id = $1 where id < $1;

-- name: stale_writers
-- Transactions that may still act on the old horizon: older than the one that raised it, or with an older snapshot.
-- Writers are seen whoever they are; of other roles' readers a plain role sees nothing, which the look after the detach
-- makes good.
select count(*)
  + (select (age(pg_snapshot_xmin(pg_current_snapshot())::xid) >= age(h.xmin))::integer from windlass.horizon h) as n
from pg_stat_activity a
where a.datname = current_database() and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
  and greatest(age(a.backend_xid), age(a.backend_xmin)) >= (select age(h.xmin) from windlass.horizon h);

-- name: keepers
-- Jobs of a range that outlive their partition: unfinished, dead-lettered, keyed, or finished lately.
select k.job_id from (
  select job_id from windlass.scheduled where job_id >= $1 and job_id < $2
  union select job_id from windlass.held where job_id >= $1 and job_id < $2
  union select job_id from windlass.ready where job_id >= $1 and job_id < $2
  union select job_id from windlass.running where job_id >= $1 and job_id < $2
  union select job_id from windlass.idempotency where job_id >= $1 and job_id < $2
  union select job_id from windlass.outcome_kept where job_id >= $1 and job_id < $2
  union select job_id from windlass.outcome where job_id >= $1 and job_id < $2
    and (status = 'failed' or finished_at > now() - make_interval(secs => $3))
) k
where exists (select from windlass.job j where j.id = k.job_id)
  or exists (select from windlass.outcome o where o.job_id = k.job_id)
order by k.job_id
limit $4;

-- name: keep
-- Move jobs with all that belongs to them to the `_kept` tables. A move, not a copy: a copy could be retried or
-- cancelled in one place and live on in the other.
with job_rows as (
  delete from windlass.job where id = any ($1::uuid[]) returning *
), tag_rows as (
  delete from windlass.tag where job_id = any ($1::uuid[]) returning *
), outcome_rows as (
  delete from windlass.outcome where job_id = any ($1::uuid[]) returning *
), attempt_rows as (
  delete from windlass.attempt where job_id = any ($1::uuid[]) returning *
), kept_tags as (
  insert into windlass.tag_kept select * from tag_rows on conflict do nothing
), kept_outcomes as (
  insert into windlass.outcome_kept select * from outcome_rows on conflict do nothing
), kept_attempts as (
  insert into windlass.attempt_kept select * from attempt_rows
)
insert into windlass.job_kept select * from job_rows on conflict do nothing returning id;

-- name: keep_late
-- After the detach: what was written into the partition while it was going. Same rules as keepers.
with late as materialized (
  select o.job_id from windlass.outcome_{bounds} o
  where o.status = 'failed' or o.finished_at > now() - make_interval(secs => $1)
    or exists (select from windlass.idempotency i where i.job_id = o.job_id)
  union
  select j.id from windlass.job_{bounds} j
  where exists (select from windlass.scheduled t where t.job_id = j.id)
    or exists (select from windlass.held t where t.job_id = j.id)
    or exists (select from windlass.ready t where t.job_id = j.id)
    or exists (select from windlass.running t where t.job_id = j.id)
    or exists (select from windlass.outcome_kept t where t.job_id = j.id)
), kept_outcomes as (
  insert into windlass.outcome_kept
  select o.* from windlass.outcome_{bounds} o where o.job_id in (select job_id from late) on conflict do nothing
), kept_tags as (
  insert into windlass.tag_kept
  select t.* from windlass.tag_{bounds} t
  where t.job_id in (select job_id from late) or exists (select from windlass.job_kept k where k.id = t.job_id)
  on conflict do nothing
), kept_attempts as (
  insert into windlass.attempt_kept
  select a.* from windlass.attempt_{bounds} a
  where a.job_id in (select job_id from late) or exists (select from windlass.job_kept k where k.id = a.job_id)
)
insert into windlass.job_kept
select j.* from windlass.job_{bounds} j where j.id in (select job_id from late) on conflict do nothing returning id;

-- name: uncount
-- Take what is dropped with a partition out of the counts.
insert into windlass.counter (status, queue, type, n)
select o.status, o.queue, o.type, -count(*)
from windlass.outcome_{bounds} o
where not exists (select from windlass.outcome_kept k where k.job_id = o.job_id)
group by o.status, o.queue, o.type;

-- name: sweep_kept
-- Remove kept jobs that finished long ago, unless dead-lettered or keyed.
with old as materialized (
  select o.job_id from windlass.outcome_kept o
  where o.status <> 'failed' and o.finished_at < now() - make_interval(secs => $1)
    and not exists (select from windlass.idempotency i where i.job_id = o.job_id)
  order by o.job_id limit $2
  for update skip locked
), outcomes as (
  delete from windlass.outcome_kept o using old where o.job_id = old.job_id returning o.status, o.queue, o.type
), jobs as (
  delete from windlass.job_kept j using old where j.id = old.job_id
), tags as (
  delete from windlass.tag_kept t using old where t.job_id = old.job_id
), attempts as (
  delete from windlass.attempt_kept a using old where a.job_id = old.job_id
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select o.status, o.queue, o.type, -count(*) from outcomes o group by o.status, o.queue, o.type
)
select job_id from old;
