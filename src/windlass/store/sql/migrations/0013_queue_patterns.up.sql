-- serves: 7
-- Workers that serve queues by pattern: `tenant-*`, or `*` for all. `queues` says what a worker serves, as it was written;
-- `prefixes` are its patterns without their star, so that one operator finds who serves a queue (queue ^@ any (prefixes)).
-- No queue has a star in its name. Computed here, so that workers of older versions need not say it.

create function windlass.queue_prefixes(queues text[]) returns text[]
language sql immutable parallel safe
return array(select left(q.name, -1) from unnest(queues) as q (name) where right(q.name, 1) = '*');

alter table windlass.worker add column prefixes text[] not null generated always as (windlass.queue_prefixes(queues)) stored;
alter table windlass.idle add column prefixes text[] not null generated always as (windlass.queue_prefixes(queues)) stored;

-- The lines of ready jobs (a queue and a width) that workers with these prefixes serve, up to a width, behind a given line, with
-- the lowest rank in each. One probe of ready_claim for each line and for each queue of others that lies between, p_steps at
-- most: whoever gets that many rows asks again behind the last. Queues that do not match are stepped over one by one, because
-- the order of names is the database's, in which those with one prefix need not stand together.
create function windlass.ready_lines_v1(
  p_prefixes text[], p_queue text, p_demand smallint, p_widest smallint, p_steps integer
) returns table (queue text, thread_demand smallint, rank bigint, wanted boolean)
language sql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off
set plan_cache_mode = force_generic_plan set jit = off
begin atomic
  with recursive line (queue, demand, rank, wanted, step) as (
    select p_queue, p_demand, null::bigint, p_demand <= p_widest and p_queue ^@ any (p_prefixes), 0
    union all
    select f.queue, f.thread_demand, f.rank, f.thread_demand <= p_widest and f.queue ^@ any (p_prefixes), l.step + 1
    from line l
    cross join lateral (
      select r.queue, r.thread_demand, r.rank from windlass.ready r
      where (r.queue, r.thread_demand) > (l.queue, case when l.wanted then l.demand else 32767::smallint end)
      order by r.queue, r.thread_demand, r.rank limit 1
    ) f
    where l.step < p_steps
  )
  select l.queue, l.demand, l.rank, l.wanted from line l where l.step > 0 order by l.step;
end;

-- As claim_v1. New: a worker that serves its queue by pattern takes a reserved job; and p_each bounds how many jobs are looked
-- at (and locked) in each line, for claims over hundreds of lines.
create function windlass.claim_v2(
  p_worker uuid, p_token uuid, p_queues text[], p_demands smallint[], p_floors bigint[], p_types text[],
  p_budget integer, p_busy integer, p_most integer, p_each integer
) returns table (
  job_id uuid, attempt integer, token uuid, worker_id uuid, type text, queue text, threads smallint, rank bigint,
  failures integer, suspect boolean, crashes integer, max_attempts integer, timeout_s double precision, retry json,
  payload json, name text, priority smallint, thread_demand smallint, tags text[], idempotency_key text, trace text,
  waited_s double precision
)
language sql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
begin atomic
  select set_config('synchronous_commit', 'off', true);
  with me as materialized (
    select w.threads, w.queues, w.prefixes from windlass.worker w
    where w.id = p_worker and w.died_at is null and not w.draining and w.lease_until > now()
  ), reserved as materialized (
    select v.job_id, v.threads from windlass.reservation v
    where v.worker_id = p_worker and v.expires_at > now()
      and exists (
        select from windlass.ready r left join windlass.queue q on q.name = r.queue
        where r.job_id = any (array[v.job_id]) and q.paused is not true
      )
  ), room as materialized (
    select me.queues, me.prefixes,
      case when v.threads <= me.threads - p_busy then v.job_id end as reserved,
      case when v.job_id is null or v.threads <= me.threads - p_busy then greatest(p_budget, 0) else 0 end as budget
    from me left join reserved v on true
  ), found as materialized (
    select f.job_id, f.rank, f.thread_demand, false as first
    from room
    cross join unnest(p_queues, p_demands, p_floors) as look (queue, demand, floor)
    cross join lateral (
      select r.job_id, r.rank, r.thread_demand from windlass.ready r
      where r.queue = look.queue and r.thread_demand = look.demand and r.rank >= look.floor
        and r.type = any (p_types) and r.job_id is distinct from room.reserved
      order by r.rank
      limit least(p_each, room.budget / look.demand + 1)  -- the first that does not fit ends the line for all
      for update skip locked
    ) f
    where not exists (select from windlass.queue q where q.name = look.queue and q.paused)
    union all
    select f.job_id, f.rank, f.thread_demand, true
    from room
    cross join lateral (
      select r.job_id, r.rank, r.thread_demand from windlass.ready r
      where r.job_id = any (array[room.reserved]) and r.type = any (p_types)
        and (r.queue = any (room.queues) or r.queue ^@ any (room.prefixes))
      for update skip locked
    ) f
  ), merged as (
    select f.job_id, sum(f.thread_demand) over line as threads, row_number() over line as place
    from found f window line as (order by f.first desc, f.rank, f.job_id)
  ), gone as (
    delete from windlass.ready r
    where r.job_id = any (array(select m.job_id from merged m, room where m.threads <= room.budget and m.place <= p_most))
    returning r.*
  ), moved as (
    insert into windlass.running (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type,
      crashed_at, claimed_at, token, worker_id)
    select g.job_id, g.rank, g.ready_at, g.attempt + 1, g.failures, g.thread_demand, g.suspect, g.queue, g.type,
      g.crashed_at, now(), p_token, p_worker
    from gone g
    returning *
  ), counted as (
    insert into windlass.counter (status, queue, type, n)
    select side.status, m.queue, m.type, side.sign * count(*)
    from moved m cross join (values ('ready', -1), ('running', 1)) as side (status, sign)
    group by side.status, side.sign, m.queue, m.type
  )
  select m.job_id, m.attempt, m.token, m.worker_id, m.type, m.queue, m.thread_demand, m.rank, m.failures, m.suspect,
    case when m.crashed_at is null then 0
         else (select count(*)::integer from unnest(m.crashed_at) c where c > now() - interval '1 day') end,
    j.max_attempts, j.timeout_s, j.retry, j.payload, j.name, j.priority, j.thread_demand, j.tags, j.idempotency_key,
    j.trace, date_part('epoch', m.claimed_at - m.ready_at)
  from moved m
  left join lateral (
    select j.* from windlass.job j where j.id = m.job_id
    union all
    select k.* from windlass.job_kept k where k.id = m.job_id
    limit 1
  ) j on true
  order by m.rank, m.job_id;
end;
