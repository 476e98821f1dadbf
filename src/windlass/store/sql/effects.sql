-- The ledger of effects: what handlers do in the world outside, recorded as intended before and as done after (ctx.effect), and
-- the one start of jobs that are started once at most (key windlass:start). Fence of all that workers write: the lease, whose row
-- is locked, so that a worker whose lease is lost writes nothing.

-- name: intend
-- Record that an effect is about to happen; returns what was recorded before. What is found intended is unknown if another attempt
-- wrote it, or this one said so itself ($7: it has left the block without knowing); else it is our own write whose answer was lost.
-- An unknown effect is taken over (repeat), counted as done (skip), or left for a person (ask). Durable even where the database's
-- default is not: a crash that forgot the intention would let a later attempt do it again.
with mine as (
  select r.job_id from windlass.running r
  where r.job_id = any (array[$1::uuid]) and r.attempt = $2 and r.token = $3 and r.worker_id is not distinct from $4::uuid
  for update
), found as (
  select e.state, e.token, e.result from windlass.effect e
  where e.job_id = any (array(select m.job_id from mine m)) and e.key = $5::text
), written as (
  insert into windlass.effect as e (job_id, key, state, token, attempt, at, if_unknown)
  select m.job_id, $5::text, 'intended', $3::uuid, $2::integer, now(), $6::text from mine m
  on conflict (job_id, key) do update
  set if_unknown = excluded.if_unknown,
    state = case when excluded.if_unknown = 'skip' then 'done' else e.state end,
    done_at = case when excluded.if_unknown = 'skip' then now() end,
    token = case when excluded.if_unknown = 'repeat' then excluded.token else e.token end,
    attempt = case when excluded.if_unknown = 'repeat' then excluded.attempt else e.attempt end,
    at = case when excluded.if_unknown = 'repeat' then excluded.at else e.at end
  where e.state = 'intended' and (e.token <> excluded.token or $7::boolean)
)
select case when f.state is null or (f.state = 'intended' and f.token = $3 and not $7::boolean) then 'new'
            when f.state = 'done' then 'done' else 'unknown' end as found, f.result,
  case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end as durable
from mine m left join found f on true;

-- name: effect_state
-- What is recorded of an effect; nothing is written. Index: effect_pkey.
select case e.state when 'done' then 'done' else 'unknown' end as found, e.result
from windlass.effect e where e.job_id = $1 and e.key = $2;

-- name: finish_effect
-- Record that an effect has happened.
with mine as (
  select r.job_id from windlass.running r
  where r.job_id = any (array[$1::uuid]) and r.attempt = $2 and r.token = $3 and r.worker_id is not distinct from $4::uuid
  for update
), written as (
  update windlass.effect e set state = 'done', done_at = now(), result = $6::text::json
  where e.job_id = any (array(select m.job_id from mine m)) and e.key = $5 and e.token = $3 and e.state = 'intended'
)
select m.job_id from mine m;

-- name: take_back_effect
-- Record that an intended effect has not happened.
with mine as (
  select r.job_id from windlass.running r
  where r.job_id = any (array[$1::uuid]) and r.attempt = $2 and r.token = $3 and r.worker_id is not distinct from $4::uuid
  for update
), gone as (
  delete from windlass.effect e
  where e.job_id = any (array(select m.job_id from mine m)) and e.key = $5 and e.token = $3 and e.state = 'intended'
)
select m.job_id from mine m;

-- name: unstarted
-- Of jobs whose worker has died, those that have certainly not begun: they are started once at most, and no start is recorded. A
-- start that is being recorded at this moment keeps the job from beginning ever again, which errs on the safe side.
select r.job_id from windlass.running r
where r.job_id = any ($1::uuid[])
  and exists (select from windlass.job_type t where t.name = r.type and t.at_most_once)
  and not exists (select from windlass.effect e where e.job_id = any (array[r.job_id]) and e.key = 'windlass:start');

-- name: lock_undecided
-- Keep others from deciding the same job meanwhile. A statement of its own: the next one's snapshot then sees what they decided.
select h.job_id from windlass.held h
where h.job_id = any (array[$1::uuid]) and h.reason = 'needs decision'
for update;

-- name: decide
-- Record what a person says of an unknown effect: done, or redo, which forgets the intention. The job is ready again once nothing
-- is undecided. Guard: lock_undecided. Without a key ($3) the only one there is; with several nothing is chosen, and nothing
-- changes.
with asked as materialized (
  select e.key from windlass.effect e
  where e.job_id = any (array[$1::uuid]) and e.state = 'intended' and e.if_unknown = 'ask' and e.key <> 'windlass:start'
), chosen as materialized (
  select a.key from asked a where a.key = $3::text or ($3::text is null and (select count(*) from asked) = 1)
), done as (
  update windlass.effect e set state = 'done', done_at = now()
  where $2::text = 'done' and e.job_id = any (array[$1::uuid]) and e.key = any (array(select c.key from chosen c))
), redone as (
  delete from windlass.effect e
  where $2::text = 'redo' and e.job_id = any (array[$1::uuid]) and e.key = any (array(select c.key from chosen c))
), gone as (
  delete from windlass.held h
  where h.job_id = any (array[$1::uuid]) and h.reason = 'needs decision'
    and (select count(*) from asked) = (select count(*) from chosen) and ($3::text is null or exists (select from chosen))
  returning h.*
), forgotten as (  -- the start of a job that is started once at most, as in retry: to go on with it is a person's decision
  delete from windlass.effect e
  where e.job_id = any (array(select g.job_id from gone g)) and e.key = 'windlass:start'
), readied as (
  insert into windlass.ready (job_id, rank, ready_at, attempt, failures, thread_demand, suspect, queue, type, crashed_at)
  select g.job_id, g.rank + windlass.microseconds(now()) - windlass.microseconds(g.ready_at), now(), g.attempt,
    g.failures, g.thread_demand, g.suspect, g.queue, g.type, g.crashed_at
  from gone g
  on conflict do nothing
  returning job_id
), counted as (
  insert into windlass.counter (status, queue, type, n)
  select side.status, g.queue, g.type, side.sign * count(*)
  from gone g cross join (values ('held', -1), ('ready', 1)) as side (status, sign)
  group by side.status, side.sign, g.queue, g.type
)
select array(select a.key from asked a order by a.key) as asked, (select c.key from chosen c) as chosen,
  exists (select from readied) as ready;

-- name: old_effects
-- Jobs with effects, by id, after the last one seen: of those whose partition may be gone. Index: effect_pkey.
select distinct e.job_id from windlass.effect e
where e.job_id > $1 and e.job_id < (select h.id from windlass.horizon h)
order by e.job_id limit $2;

-- name: sweep_effects
-- Forget the effects of jobs that are gone. A job that is there keeps them however old: replayed after weeks it must not do them
-- again. Guard: none while a partition hangs between attached and dropped, for its jobs are out of sight.
delete from windlass.effect e
where e.job_id = any ($1::uuid[])
  and not exists (select from windlass.job j where j.id = any (array[e.job_id]))
  and not exists (select from windlass.job_kept j where j.id = any (array[e.job_id]))
  and not exists (
    select from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    left join pg_inherits i on i.inhrelid = c.oid
    where n.nspname = $2::text and c.relkind = 'r' and c.relname ~ '^job_\d{8}_\d{8}$'
      and (i.inhparent is null or i.inhdetachpending)
  )
returning e.job_id;
