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
    select status, queue, type, n from windlass.tally
    union all select status, queue, type, n from windlass.counter
    union all select status, queue, type, -1 from place
  ) every
  group by status, queue, type
)
select
  (select count(*) from known k where not exists (select from place p where p.job_id = k.id)) as nowhere,
  (select count(*) from (select from place group by job_id having count(*) > 1) twice) as twice,
  (select count(*) from place p where not exists (select from known k where k.id = p.job_id)) as homeless,
  (select count(*) from counted where n <> 0) as miscounted;
