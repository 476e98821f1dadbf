-- Wake-ups. Nothing here is needed for correctness: workers also poll. `idle` is unlogged and notifications leave no
-- WAL, so none of these transactions waits for the disk, nor holds the lock that NOTIFY takes until it has. Workers that
-- `pops` is said of do not hear notifications: who rouses them tells them through Redis, if he can.

-- name: rest
-- A worker with room says so; its place in the line stays, unless it has had work since ($5). $7: the secret channel on which a job
-- may be handed to it within $8 seconds; null: it is only told. A row that a rouser is taking away at this moment is left to it,
-- without waiting: that rouser wakes the worker. Returns how many jobs are this worker's for longer than $9 seconds. Indexes: the
-- primary key, running_worker.
with mine as (
  select i.worker_id from windlass.idle i where i.worker_id = $1 for update skip locked
), kept as (
  update windlass.idle i
  set free = $2, queues = $3::text[], types = $4::text[], pops = $6, hand_key = $7::uuid,
    hand_until = now() + make_interval(secs => $8::double precision),
    since = case when $5 then clock_timestamp() else i.since end
  where i.worker_id = any (array(select m.worker_id from mine m))
    and ($5 or $7::uuid is not null
      or (i.free, i.queues, i.types, i.pops, i.hand_key) is distinct from ($2, $3::text[], $4::text[], $6, $7))
), put as (
  insert into windlass.idle (worker_id, since, free, queues, types, pops, hand_key, hand_until)
  select $1, clock_timestamp(), $2, $3::text[], $4::text[], $6, $7, now() + make_interval(secs => $8)
  where not exists (select from windlass.idle i where i.worker_id = $1)
  on conflict (worker_id) do nothing
)
select count(*) as held from windlass.running r
where r.worker_id = $1 and r.claimed_at < now() - make_interval(secs => $9::double precision);

-- name: leave
-- A worker is busy, or gone. What a rouser is taking away at this moment is left to it, without waiting.
delete from windlass.idle i
where i.worker_id = any (array(select o.worker_id from windlass.idle o where o.worker_id = $1 for update skip locked));

-- name: rouse
-- Share jobs (queue, type, width, count) out to the idle workers they fit, the one that rests longest first, each up
-- to its free threads; take the rows of those who got some and notify them. Rows of the dead go without a word, or they
-- would swallow wake-ups; so would those whose threads are reserved, which stay. Only as many rows are locked as have the threads that are wanted: a rouser beside us passes over
-- what we lock, and would find nobody. What we pass over is woken by whoever holds it, after our jobs were committed.
-- `short`: how many jobs of each want found nobody, in order of the wants. `found`: rows that were ours to share out;
-- `passed`: rows that were not. The table has one row per idle worker: it is scanned.
with recursive want as materialized (
  select w.* from rows from (json_to_recordset($1::text::json) as (queue text, type text, threads integer, count integer))
    with ordinality as w (queue, type, threads, count, n)
), needed as materialized (
  select count(*) as rows from (
    select sum(i.free) over (order by i.since, i.worker_id) - i.free as before from windlass.idle i
    where exists (
      select from want w
      where (w.queue = any (i.queues) or w.queue ^@ any (i.prefixes)) and w.type = any (i.types) and w.threads <= i.free
    )
      and (not i.pops or $3)
      and not exists (select from windlass.reservation v where v.worker_id = i.worker_id and v.expires_at > now())
  ) c
  where c.before < (select sum(w.threads * w.count::bigint) from want w)
), found as materialized (
  select i.* from windlass.idle i
  where exists (
      select from want w
      where (w.queue = any (i.queues) or w.queue ^@ any (i.prefixes)) and w.type = any (i.types) and w.threads <= i.free
    )
    and (not i.pops or $3)
    and not exists (select from windlass.reservation v where v.worker_id = i.worker_id and v.expires_at > now())
  order by i.since, i.worker_id limit (select least(n.rows, $2::integer) from needed n)
  for update skip locked
), line as materialized (
  select f.worker_id, f.queues, f.prefixes, f.types, f.pops, row_number() over (order by f.since, f.worker_id) as place,
    case when exists (
      select from windlass.worker w
      where w.id = f.worker_id and w.died_at is null and not w.draining and w.lease_until > now()
    ) then f.free else 0 end as free
  from found f
), shared (n, free, short) as (
  select 0::bigint, array(select l.free from line l order by l.place), array[]::integer[]
  union all
  select s.n + 1, given.free, s.short || given.short
  from shared s
  join want w on w.n = s.n + 1
  cross join lateral (
    select array_agg(t.free - w.threads * least(t.fits, greatest(w.count - t.before, 0)) order by t.place)::integer[] as free,
      greatest(w.count - coalesce(sum(t.fits), 0), 0)::integer as short
    from (
      select l.place, f.free, f.fits, sum(f.fits) over (order by l.place) - f.fits as before
      from line l cross join lateral (
        select s.free[l.place] as free,
          case when (w.queue = any (l.queues) or w.queue ^@ any (l.prefixes)) and w.type = any (l.types)
            then s.free[l.place] / w.threads else 0 end as fits
      ) f
    ) t
  ) given
), result as materialized (
  select s.free, s.short from shared s order by s.n desc limit 1
), gone as (
  delete from windlass.idle i
  where i.worker_id = any (array(select l.worker_id from line l, result r where r.free[l.place] < l.free or l.free = 0))
), told as materialized (
  select l.worker_id, l.place, l.pops,
    case when not l.pops then pg_notify('windlass_' || replace(l.worker_id::text, '-', ''), '') end
  from line l, result r where r.free[l.place] < l.free
)
select array(select t.worker_id from told t order by t.place) as woken,
  array(select t.worker_id from told t where t.pops order by t.place) as popping, r.short, f.rows as found,
  least(n.rows, $2::integer) - f.rows as passed
from result r, needed n, (select count(*) as rows from line) f;

-- name: rouse_one
-- The usual case, one job: notify the worker that rests longest of those it fits, and take its row. Half the time of the
-- general statement, on an idle system half a millisecond. Not the dead, nor those whose threads are reserved.
with found as (
  select i.worker_id from windlass.idle i
  where ($1::text = any (i.queues) or $1 ^@ any (i.prefixes)) and $2::text = any (i.types) and $3::integer <= i.free and (not i.pops or $4)
    and exists (
      select from windlass.worker w
      where w.id = i.worker_id and w.died_at is null and not w.draining and w.lease_until > now()
    )
    and not exists (select from windlass.reservation v where v.worker_id = i.worker_id and v.expires_at > now())
  order by i.since, i.worker_id limit 1
  for update of i skip locked
), gone as (
  delete from windlass.idle i where i.worker_id = any (array(select f.worker_id from found f))
  returning i.worker_id, i.pops
)
select g.worker_id, g.pops,
  case when not g.pops then pg_notify('windlass_' || replace(g.worker_id::text, '-', ''), '') is null end as told
from gone g;

-- name: wake_workers
-- Notify these workers, those of them that are idle, and take their rows. Indexes: the primary key.
with gone as (
  delete from windlass.idle i
  where i.worker_id = any (array(
    select o.worker_id from windlass.idle o where o.worker_id = any ($1::uuid[]) and (not o.pops or $2) for update skip locked
  ))
  returning i.worker_id, i.pops
)
select g.worker_id, g.pops,
  case when not g.pops then pg_notify('windlass_' || replace(g.worker_id::text, '-', ''), '') is null end as told
from gone g;

-- name: popping
-- Who must be told through Redis that there may be work for all.
select i.worker_id from windlass.idle i where i.pops limit $1;

-- name: anyone_idle
-- The cheap question, for when the last answer was nobody.
select exists (select from windlass.idle) as anyone;

-- name: call_all
-- Tell every worker that listens, when this transaction commits; PostgreSQL folds repetitions within one. Not into a
-- queue that is filling up behind a listener that hangs: it would fail the commit, and a hint is not worth a job.
select pg_notify($1::text, '') where pg_notification_queue_usage() < 0.5;

-- name: nudge
-- Tell the supervisors of those who run these jobs to look at their cancel requests. Index: running's primary key.
with asked as (
  select distinct w.supervisor_id as id
  from unnest($1::uuid[]) as j (job_id)
  join windlass.running r on r.job_id = any (array[j.job_id])
  join windlass.worker w on w.id = any (array[r.worker_id])
  where w.supervisor_id is not null and w.died_at is null
)
select a.id, pg_notify('windlass_' || replace(a.id::text, '-', ''), 'cancel') is null as told from asked a;
