-- Workers, their leases, what the dead leave behind, and who leads. Every statement may be repeated, and run by two at
-- once, without harm.

-- name: register
-- A worker begins its life. Guard: the id, which is never used again; repeating is answered by whether it still lives.
insert into windlass.worker (id, supervisor_id, started_at, renewed_at, lease_until, threads, name, queues, types, digests,
  version)
values ($1, $2, now(), now(), now() + make_interval(secs => $3), $4, $5, $6, $7, $8, $9)
on conflict (id) do update set renewed_at = excluded.renewed_at, lease_until = excluded.lease_until
where worker.died_at is null
returning id;

-- name: declare
-- Say what types there are. What is as it was is not touched, not even locked: workers declare at every start of theirs.
-- In the order of names, so that two that declare at once do not wait for each other.
with declared as (
  select d.* from json_to_recordset($1::text::json) as d (
    name text, timeout_s double precision, max_attempts integer, priority smallint, thread_demand smallint, queue text,
    if_too_wide text, tags text[], retry json, isolation text, at_most_once boolean, description text, schema json
  )
)
insert into windlass.job_type as t (name, declared_at, timeout_s, max_attempts, priority, thread_demand, queue,
  if_too_wide, tags, retry, isolation, at_most_once, description, schema)
select d.name, now(), d.timeout_s, d.max_attempts, d.priority, d.thread_demand, d.queue, d.if_too_wide, d.tags, d.retry,
  d.isolation, d.at_most_once, d.description, d.schema
from declared d
where not exists (
  select from windlass.job_type k
  where k.name = d.name
    and (k.timeout_s, k.max_attempts, k.priority, k.thread_demand, k.queue, k.if_too_wide, k.tags, k.retry::text,
      k.isolation, k.at_most_once, k.description, k.schema::text)
      is not distinct from (d.timeout_s, d.max_attempts, d.priority, d.thread_demand, d.queue, d.if_too_wide, d.tags,
      d.retry::text, d.isolation, d.at_most_once, d.description, d.schema::text)
)
order by d.name
on conflict (name) do update
set declared_at = excluded.declared_at, timeout_s = excluded.timeout_s, max_attempts = excluded.max_attempts,
  priority = excluded.priority, thread_demand = excluded.thread_demand, queue = excluded.queue,
  if_too_wide = excluded.if_too_wide, tags = excluded.tags, retry = excluded.retry, isolation = excluded.isolation,
  at_most_once = excluded.at_most_once,
  description = excluded.description, schema = excluded.schema
where (t.timeout_s, t.max_attempts, t.priority, t.thread_demand, t.queue, t.if_too_wide, t.tags, t.retry::text,
    t.isolation, t.at_most_once, t.description, t.schema::text)
  is distinct from (excluded.timeout_s, excluded.max_attempts, excluded.priority, excluded.thread_demand, excluded.queue,
    excluded.if_too_wide, excluded.tags, excluded.retry::text, excluded.isolation, excluded.at_most_once,
    excluded.description, excluded.schema::text)
returning t.name;

-- name: declare_versions
-- Say which versions of types there are. A version does not change; that it is still declared is said once a day.
with declared as (
  select d.* from json_to_recordset($1::text::json) as d (type text, digest text, fields text[], schema json)
)
insert into windlass.type_version as v (type, digest, first_declared_at, declared_at, fields, schema)
select d.type, d.digest, now(), now(), d.fields, d.schema
from declared d
where not exists (
  select from windlass.type_version k
  where k.type = d.type and k.digest = d.digest and k.declared_at >= now() - interval '1 day'
)
order by d.type, d.digest
on conflict (type, digest) do update set declared_at = now() where v.declared_at < now() - interval '1 day';

-- name: add_versions
-- The same for programs that enqueue: those there are stay as they are. So a role that may do nothing but enqueue needs no right to
-- change the schemas that the API checks payloads against.
insert into windlass.type_version (type, digest, first_declared_at, declared_at, fields, schema)
select d.type, d.digest, now(), now(), d.fields, d.schema
from json_to_recordset($1::text::json) as d (type text, digest text, fields text[], schema json)
order by d.type, d.digest
on conflict (type, digest) do nothing;

-- name: refresh_types
-- These types, and those of living workers, are still declared. Written once a day at most.
update windlass.job_type t set declared_at = now()
where t.declared_at < now() - interval '1 day'
  and (t.name = any ($1::text[]) or exists (select from windlass.living_version l where l.type = t.name))
returning t.name;

-- name: refresh_versions
-- The same for the versions of types.
update windlass.type_version v set declared_at = now()
where v.declared_at < now() - interval '1 day'
  and exists (select from windlass.living_version l where l.type = v.type and l.digest = v.digest);

-- name: forget_types
-- Types that nobody has declared for long. Guard: no living worker has the type, whenever it was declared.
delete from windlass.job_type t
where t.declared_at < now() - make_interval(secs => $1)
  and not exists (select from windlass.living_version l where l.type = t.name)
returning t.name;

-- name: forget_versions
-- The same for the versions of types.
delete from windlass.type_version v
where v.declared_at < now() - make_interval(secs => $1)
  and not exists (select from windlass.living_version l where l.type = v.type and l.digest = v.digest);

-- name: renew
-- Push out the leases of workers that live, and note how many of their threads are lost and how much memory they use. Dead is
-- final: a worker not returned must stop. Index: the primary key, one probe each.
update windlass.worker w
set renewed_at = now(), lease_until = now() + make_interval(secs => $2), lost_threads = x.lost_threads,
  memory_bytes = x.memory_bytes
from unnest($1::uuid[], $3::integer[], $4::bigint[]) as x (id, lost_threads, memory_bytes)
where w.id = any (array[x.id]) and w.died_at is null
returning w.id, w.draining or w.stopping as leaving;

-- name: leaving
-- Which of these workers were asked to leave, and how. Index: the primary key.
select w.id, w.draining, w.stopping from windlass.worker w
where w.id = any ($1::uuid[]) and w.died_at is null and (w.draining or w.stopping);

-- name: ask_to_leave
-- Ask a worker to finish its jobs and go ('drain'), or to give them back and start anew ('stop'), and notify its supervisor when this
-- commits. Guard: it lives, and has a supervisor that acts on it. Not into a queue of notifications that is filling up: it would
-- fail the commit, and the supervisor looks at each heartbeat. Index: the primary key.
with asked as (
  update windlass.worker w
  set draining = w.draining or $2::text = 'drain', stopping = w.stopping or $2::text = 'stop'
  where w.id = $1 and w.died_at is null and w.lease_until > now() and w.supervisor_id is not null
  returning w.supervisor_id
)
select case when pg_notification_queue_usage() < 0.5
  then pg_notify('windlass_' || replace(a.supervisor_id::text, '-', ''), $2) is null end as told
from asked a;

-- name: drain
-- Workers that live claim no more.
update windlass.worker set draining = true where id = any ($1::uuid[]) and died_at is null returning id;

-- name: bury
-- Say that workers are dead, and of what. What they still hold is reaped; nobody wakes them any more.
with woken_no_more as (
  delete from windlass.idle i where i.worker_id = any ($1::uuid[])
)
update windlass.worker set died_at = now(), cause = $2 where id = any ($1::uuid[]) and died_at is null returning id;

-- name: bury_expired
-- Workers whose lease ended. They have stopped: each stops before its lease ends, by its own clock. That is certain only if the
-- clock that says so now has granted the lease. After a restart, a failover or a jump of the clock, what was granted before
-- gets its whole length again, to be renewed or to stop in. Guard: this is the server that the leader asked last.
-- A renewal in progress wins: its row is passed by, and looked at again at the next tick.
with over as materialized (
  select w.id from windlass.worker w cross join windlass.server s
  where w.died_at is null and w.lease_until <= now() and s.started_at = pg_postmaster_start_time()
    and s.clock_since <= greatest(w.renewed_at, now() - (w.lease_until - w.renewed_at))
  for no key update of w skip locked
)
update windlass.worker w set died_at = now(), cause = 'expired'
where w.id = any (array(select o.id from over o)) and w.died_at is null and w.lease_until <= now()
returning w.id;

-- name: overdue
-- Whether the lease of some worker ended so long ago that the leader should have buried it.
select exists (
  select from windlass.worker w where w.died_at is null and w.lease_until <= now() - make_interval(secs => $1)
) as overdue;

-- name: lost
-- Running rows whose worker is dead or unknown: never "who has just died", or a claim that commits late is orphaned.
-- Holders are found by stepping through running_worker, one probe each. A lost lease counts as a crash only if the database was
-- reached all the while since it was last renewed, and another worker renewed after it ended: else the database was away, not the
-- worker. A worker buried by its supervisor
-- has had its begun jobs settled as crashed before; what is found here it had not begun. Nor had a job that is started once at most
-- and whose start is not recorded. Rows that somebody's open transaction holds are passed by: they must not keep all others waiting.
with recursive holder (worker_id) as (
  (select r.worker_id from windlass.running r order by r.worker_id limit 1)
  union all
  select (select r.worker_id from windlass.running r where r.worker_id > h.worker_id order by r.worker_id limit 1)
  from holder h where h.worker_id is not null
), dead as (
  select h.worker_id, coalesce(w.cause = 'expired' and exists (
      select from windlass.worker other where other.id <> w.id and other.renewed_at > w.lease_until
    ) and (select s.reached_since from windlass.server s) <= w.renewed_at, false) as crashed
  from holder h left join windlass.worker w on w.id = h.worker_id
  where h.worker_id is not null and (w.id is null or w.died_at is not null)
)
select r.job_id, r.attempt, r.token, r.worker_id, r.type, r.queue, r.thread_demand as threads, r.rank, r.failures,
  r.suspect,
  (select count(*)::integer from unnest(r.crashed_at) c where c > now() - interval '1 day') as crashes,
  j.max_attempts, j.timeout_s, j.retry, '' as payload, j.name, j.priority, j.thread_demand, j.tags,
  j.idempotency_key, j.trace, date_part('epoch', r.claimed_at - r.ready_at) as waited_s, d.crashed,
  (not exists (select from windlass.job_type t where t.name = r.type and t.at_most_once)
    or exists (select from windlass.effect e where e.job_id = any (array[r.job_id]) and e.key = 'windlass:start')) as begun
from dead d
cross join lateral (
  select r.* from windlass.running r where r.worker_id = d.worker_id limit $1 for update skip locked
) r
left join lateral (
  select * from windlass.job where id = r.job_id
  union all select * from windlass.job_kept where id = r.job_id
  limit 1
) j on true
limit $1;  -- in no order: one would lock a page of every dead worker's, to return one in all

-- name: held_by
-- What these workers hold, dead or alive, for their supervisor to settle after their end. Index: running_worker.
select r.job_id, r.attempt, r.token, r.worker_id, r.type, r.queue, r.thread_demand as threads, r.rank, r.failures,
  r.suspect,
  (select count(*)::integer from unnest(r.crashed_at) c where c > now() - interval '1 day') as crashes,
  j.max_attempts, j.timeout_s, j.retry, '' as payload, j.name, j.priority, j.thread_demand, j.tags,
  j.idempotency_key, j.trace, date_part('epoch', r.claimed_at - r.ready_at) as waited_s
from unnest($1::uuid[]) as x (worker_id)
cross join lateral (select r.* from windlass.running r where r.worker_id = x.worker_id limit $2) r
left join lateral (
  select * from windlass.job where id = r.job_id
  union all select * from windlass.job_kept where id = r.job_id
  limit 1
) j on true
order by r.job_id
limit $2;

-- name: cancels
-- Which jobs of these workers were asked to cancel. Index: running_cancel, which holds nothing else.
select r.worker_id, r.job_id, r.token
from unnest($1::uuid[]) as x (worker_id)
cross join lateral (
  select r.worker_id, r.job_id, r.token from windlass.running r
  where r.worker_id = x.worker_id and r.cancel_requested is not null
) r;

-- name: forget_workers
-- Remove workers that died long ago and hold nothing.
delete from windlass.worker w
where w.died_at < now() - make_interval(secs => $1)
  and not exists (select from windlass.running r where r.worker_id = any (array[w.id]))
returning w.id;

-- name: forget_idle
-- Remove what workers that are gone said of their idleness: nobody is woken in vain.
with gone as materialized (
  select i.worker_id from windlass.idle i
  where not exists (
    select from windlass.worker w where w.id = i.worker_id and w.died_at is null and w.lease_until > now()
  )
  for update of i skip locked
)
delete from windlass.idle i where i.worker_id = any (array(select g.worker_id from gone g)) returning i.worker_id;

-- name: take_term
-- Become or stay leader, and note what that says of the server. Guard: the expiry; a holder renews its own term, anyone takes an
-- expired one. $3: the seconds since this leader last wrote here, by its own clock, or null; if the server's clock counts $4 more
-- than that, it has jumped. Nobody who leads for longer than $4 means that the server may have been out of reach.
with taken as (
  insert into windlass.leader as l (holder, term, expires_at)
  values ($1, 1, now() + make_interval(secs => $2))
  on conflict (only_one) do update
  set holder = excluded.holder, expires_at = excluded.expires_at,
      term = case when l.holder = excluded.holder and l.expires_at > now() then l.term else l.term + 1 end
  where l.holder = excluded.holder or l.expires_at <= now()
  returning term
), noted as (
  insert into windlass.server as s (started_at, clock_since, reached_since, reached_at)
  select pg_postmaster_start_time(), now(), now(), now() from taken
  on conflict (only_one) do update
  set started_at = excluded.started_at, reached_at = excluded.reached_at,
      clock_since = case
        when s.started_at <> excluded.started_at then now()
        when now() - s.reached_at > make_interval(secs => $3::double precision + $4) then now()
        else s.clock_since
      end,
      reached_since = case
        when s.started_at <> excluded.started_at or now() - s.reached_at > make_interval(secs => $4) then now()
        else s.reached_since
      end
)
select term from taken;

-- name: leave_term
-- Give the term up, so that another need not wait for it to end.
update windlass.leader set expires_at = now() where holder = $1;
