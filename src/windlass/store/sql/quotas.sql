-- What counts against the quotas of subjects: a row for each of their jobs until it has finished.

-- name: charge
-- Count jobs against the quotas of their subjects, in the transaction that stores them.
insert into windlass.charge (job_id, subject, threads)
select n.job_id, n.subject, n.threads
from unnest($1::uuid[], $2::text[], $3::smallint[]) as n (job_id, subject, threads);

-- name: count_charges
-- The unfinished jobs of a subject: how many wait, and the threads of all. Those that have finished are forgotten on
-- this occasion, so that the next count does not look at them; whoever else counts at the same time leaves them to
-- us. A job that moves is seen in one place: a move is one statement. Index: charge_subject, then primary keys.
with mine as materialized (
  select c.job_id, c.threads,
    exists (select from windlass.ready t where t.job_id = any (array[c.job_id]))
      or exists (select from windlass.scheduled t where t.job_id = any (array[c.job_id]))
      or exists (select from windlass.held t where t.job_id = any (array[c.job_id])) as waits,
    exists (select from windlass.running t where t.job_id = any (array[c.job_id])) as runs
  from windlass.charge c where c.subject = $1
), over as materialized (
  select c.job_id from windlass.charge c
  where c.job_id = any (array(select m.job_id from mine m where not m.waits and not m.runs))
  order by c.job_id for update skip locked
), forgotten as (
  delete from windlass.charge c where c.job_id = any (array(select o.job_id from over o))
)
select count(*) filter (where m.waits) as waiting,
  coalesce(sum(m.threads) filter (where m.waits or m.runs), 0) as threads
from mine m;

-- name: charged_subjects
-- Subjects that have jobs counted against their quotas, one probe of charge_subject each.
with recursive found as (
  (select c.subject from windlass.charge c order by c.subject limit 1)
  union all
  select (select c.subject from windlass.charge c where c.subject > f.subject order by c.subject limit 1)
  from found f where f.subject is not null
)
select f.subject from found f where f.subject is not null;
