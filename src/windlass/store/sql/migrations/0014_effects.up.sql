-- serves: 9
-- The ledger of effects (ctx.effect): recorded as intended before they happen and as done after, so that an attempt that finds
-- neither knows what it does not know. Rows go with their job. And types whose jobs are started once at most.
create table windlass.effect (
  job_id     uuid not null,
  key        text not null,
  token      uuid not null,
  at         timestamptz not null,
  done_at    timestamptz,
  attempt    integer not null,
  state      text not null check (state in ('intended', 'done')),
  if_unknown text not null check (if_unknown in ('repeat', 'skip', 'ask')),
  result     json,
  primary key (job_id, key),
  check ((state = 'done') = (done_at is not null))
);
alter table windlass.job_type add column at_most_once boolean not null default false;
