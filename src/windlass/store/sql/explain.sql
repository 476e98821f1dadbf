-- What explains why a job does not run: its place in the line, and who could run it. Reads only.

-- name: standing
-- Where a job waits, if it does, and what was before. Ahead are those of its queue that a claim would take first: of each
-- width in use no more than $2 are looked at. Among equal ranks the index runs in the order of arrival, as the claim does.
-- Index: primary keys; ready_claim, one probe per width.
with recursive place as materialized (
  select 'scheduled' as place, s.job_id, s.rank, s.ready_at, s.attempt, s.thread_demand, s.queue
  from windlass.scheduled s where s.job_id = $1
  union all
  select 'held', h.job_id, h.rank, h.ready_at, h.attempt, h.thread_demand, h.queue
  from windlass.held h where h.job_id = $1
  union all
  select 'ready', r.job_id, r.rank, r.ready_at, r.attempt, r.thread_demand, r.queue
  from windlass.ready r where r.job_id = $1
  limit 1
), width (demand) as (
  select (select min(r.thread_demand) from windlass.ready r where r.queue = p.queue) from place p where p.place = 'ready'
  union all
  select (select min(r.thread_demand) from windlass.ready r
          where r.queue = (select p.queue from place p) and r.thread_demand > w.demand)
  from width w where w.demand is not null
)
select p.place, p.thread_demand, now() as at, date_part('epoch', now() - p.ready_at) as due_s,
  exists (select from windlass.leader l where l.expires_at > now()) as led,
  exists (select from windlass.queue q where q.name = p.queue and q.paused) as paused,
  case when p.place = 'ready' then least($2::integer, (
    select coalesce(sum(line.jobs), 0)
    from width w cross join lateral (
      select count(*) filter (where (h.rank, h.job_id) < (p.rank, p.job_id)) as jobs
      from (
        select r.rank, r.job_id from windlass.ready r
        where r.queue = p.queue and r.thread_demand = w.demand and r.rank <= p.rank
        order by r.rank limit $2::integer
      ) h
    ) line
    where w.demand is not null
  ))::integer end as ahead,
  a.status as ended, a.error,
  array(select e.key from windlass.effect e
        where e.job_id = p.job_id and p.place = 'held' and e.state = 'intended' and e.if_unknown = 'ask'
          and e.key <> 'windlass:start'
        order by e.key) as undecided
from (values (1)) as one (row)
left join place p on true
left join lateral (
  select a.status, a.error, a.ended_at from windlass.attempt a where a.job_id = $1 and a.attempt = p.attempt
  union all
  select a.status, a.error, a.ended_at from windlass.attempt_kept a where a.job_id = $1 and a.attempt = p.attempt
  order by ended_at desc limit 1
) a on true;

-- name: quota_of
-- The quotas of the subject that a job counts against, and what else counts. Index: the primary key of charge, then
-- charge_subject.
select s.subject, s.namespace, s.waiting_max, s.threads_max, s.thread_demand_max, s.timeout_s_max, s.submissions_per_s,
  n.waiting, n.threads
from windlass.charge c
join windlass.submitter s on s.subject = c.subject
cross join lateral (
  select count(*) filter (where not u.runs) as waiting, coalesce(sum(u.threads), 0) as threads
  from (
    select m.threads, exists (select from windlass.running t where t.job_id = any (array[m.job_id])) as runs,
      exists (select from windlass.ready t where t.job_id = any (array[m.job_id]))
        or exists (select from windlass.scheduled t where t.job_id = any (array[m.job_id]))
        or exists (select from windlass.held t where t.job_id = any (array[m.job_id])) as waits
    from windlass.charge m where m.subject = c.subject
  ) u
  where u.runs or u.waits
) n
where c.job_id = $1;

-- name: hands
-- Every living worker, whether it serves this queue and knows this type, and the job it keeps its threads for: as the
-- claim sees it, that is one that waits for nothing else. Index: running_worker, one probe each.
select w.id, w.name, w.threads, coalesce(r.threads, 0)::integer as busy, w.lost_threads,
  ($1::text = any (w.queues) or $1 ^@ any (w.prefixes)) as serves, $2::text = any (w.types) as knows, w.draining, v.job_id as reserved_for
from windlass.worker w
cross join lateral (
  select sum(r.thread_demand) as threads from windlass.running r where r.worker_id = any (array[w.id])
) r
left join windlass.reservation v on v.worker_id = w.id and v.expires_at > now() and exists (
  select from windlass.ready r left join windlass.queue q on q.name = r.queue
  where r.job_id = any (array[v.job_id]) and q.paused is not true
)
where w.died_at is null and w.lease_until > now()
order by w.id;
